// A small transformer on the default device, tokens for it, and properties of any such model.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "nn/transformer.hpp"
#include "tests/nn/encoding_cases.hpp"

namespace tally::testing {

inline constexpr std::int64_t vocabulary = 7;

// i32 [batch, length]; others for each draw
inline Tensor some_tokens(std::int64_t length, std::int64_t batch = 1, std::uint64_t draw = 0) {
  Rng rng({3 + draw, stream_of("tokens"), 0});
  std::vector<std::int32_t> ids;
  for (std::int64_t n = 0; n < batch * length; ++n) ids.push_back(static_cast<std::int32_t>(rng.below(vocabulary)));
  return Tensor::from(ids, {batch, length}, default_device());
}

// Two layers, width 8, and two heads, or four that share fewer key heads. The parameters differ from their initial
// values by numbers that depend on their paths: the same in any model.
inline std::unique_ptr<Transformer> make_small_model(const EncodingChoice& choice, const std::string& attention,
                                                     std::int64_t max_length, std::int64_t key_heads = 0,
                                                     DType dtype = DType::f64) {
  ModelOptions options;
  options.layers = 2;
  options.width = 8;
  options.heads = key_heads > 0 ? 4 : 2;
  options.kv_heads = key_heads;
  options.head_width = 4;
  options.init = "fan-in";
  options.attention = attention;
  auto model = std::make_unique<Transformer>(options, choice, vocabulary, max_length, 1, dtype, default_device());
  for (auto& [path, parameter] : model->parameters()) {
    parameter.copy_from(add(parameter.detach(), normal_tensor(path, parameter.shape(), 0.3).to(dtype)));
  }
  model->project_parameters();
  return model;
}

// Another token at each of these indices changes no bit before it, and something from there on.
inline void expect_causal_at(Transformer& model, const Tensor& tokens, const std::vector<std::int64_t>& indices) {
  const NoGrad only_values;
  const std::vector<double> before = model.forward(tokens).to_vector<double>();
  for (const std::int64_t changed : indices) {
    std::vector<std::int32_t> ids = tokens.to_vector<std::int32_t>();
    std::int32_t& token = ids[static_cast<std::size_t>(changed)];
    token = static_cast<std::int32_t>((token + 1) % vocabulary);
    const std::vector<double> after =
        model.forward(Tensor::from(ids, tokens.shape(), default_device())).to_vector<double>();
    const auto untouched = static_cast<std::ptrdiff_t>(changed * vocabulary);
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + untouched, after.begin())) << changed;
    EXPECT_FALSE(std::equal(before.begin() + untouched, before.end(), after.begin() + untouched)) << changed;
  }
}

}  // namespace tally::testing
