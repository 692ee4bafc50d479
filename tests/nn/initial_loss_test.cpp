// The loss of an untrained model is about ln V for any architecture. Start values that make large logits would have to
// be unlearned first.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/math/random.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/model.hpp"

namespace tally::initial_loss_test {

constexpr std::int64_t symbols = 256, batch = 1, length = 64;
// Logits of variance 1 give ln V + 1/2; deep models without a last norm have twice that.
constexpr double most_above = 1.2, most_below = 0.3;

Tensor random_ids(const char* name) {
  Rng rng({5, stream_of(name), 0});
  std::vector<std::int32_t> ids;
  for (std::int64_t n = 0; n < batch * length; ++n) ids.push_back(static_cast<std::int32_t>(rng.below(symbols)));
  return Tensor::from(ids, {batch, length});
}

double initial_loss(const ModelOptions& options, const std::string& encoding) {
  const NoGrad only_values;
  const auto model = make_model(options, EncodingChoice::parse(encoding), symbols, length, 1);
  const Tensor mask = Tensor::full({batch, length}, 1, DType::boolean);
  const Tensor weight = Tensor::full({1}, 1.0 / (batch * length), DType::f32);
  return model->loss(random_ids("tokens"), random_ids("targets"), mask, weight).loss.item();
}

void expect_near_uniform(const ModelOptions& options, const std::string& encoding) {
  const double loss = initial_loss(options, encoding), uniform = std::log(static_cast<double>(symbols));
  SCOPED_TRACE(formatted("{} {} {} layers, width {}{}", encoding, options.init, options.layers, options.width,
                         options.tied ? ", tied" : ""));
  // The released counting code shares a matrix that starts at N(0, 1/D), with norms after the residuals: the logit of
  // the token itself is up to sqrt(D). That start is kept as it was published.
  const bool own_token = options.init == "authors" && options.tied;
  const double expected = own_token ? std::max(uniform, std::sqrt(static_cast<double>(options.width))) : uniform;
  EXPECT_LT(loss, expected + most_above);
  EXPECT_GT(loss, uniform - most_below);
}

const std::vector<std::string> inits{"gpt2", "fan-in", "authors"};

ModelOptions small(const std::string& init, bool tied) {
  ModelOptions options;
  options.layers = 2;
  options.width = 64;
  options.init = init;
  options.tied = tied;
  return options;
}

TEST(InitialLoss, IsThatOfAGuessForEveryEncoding) {
  for (const EncodingEntry* entry : encoding_registry()) {
    for (const std::string& init : inits) {
      for (const bool tied : {false, true}) expect_near_uniform(small(init, tied), entry->name);
    }
  }
}

TEST(InitialLoss, IsThatOfAGuessForEveryShapeOfModel) {
  for (const std::string& init : inits) {
    for (const bool tied : {false, true}) {
      for (const auto& [layers, width] : {std::pair<std::int64_t, std::int64_t>{1, 256}, {8, 32}}) {
        ModelOptions options = small(init, tied);
        options.layers = layers;
        options.width = width;
        expect_near_uniform(options, "rope");
        options.kv_heads = 1;
        options.norm = "rms";
        options.activation = "swiglu";
        options.bias = false;
        expect_near_uniform(options, "absolute");
        options.residual = "parallel";
        expect_near_uniform(options, "sinusoidal");
        options.final_norm = false;
        expect_near_uniform(options, "none");
        options.residual = "sequential";
        options.norm_place = "post";
        expect_near_uniform(options, "none");
      }
    }
  }
}

TEST(InitialLoss, IsThatOfAGuessForAnLstm) {
  for (const std::string& init : inits) {
    for (const bool tied : {false, true}) {
      ModelOptions options = small(init, tied);
      options.kind = "lstm";
      expect_near_uniform(options, "none");
    }
  }
}

}  // namespace tally::initial_loss_test
