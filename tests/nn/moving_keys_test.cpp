// Keys that every later token changes, in blocks of tokens, against the same token by token; over more blocks than the
// reference values have, and where neighbours are alike, for which solving a block's triangle at once goes wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <string_view>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "tests/devices.hpp"
#include "tests/nn/encoding_cases.hpp"

namespace tally {
namespace moving_keys_test {

using testing::normal_tensor;

constexpr std::int64_t length = 165, width = 8;  // three blocks of one head

class MovingKeys : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(MovingKeys);

// The largest difference between the terms of the score and the scores of the keys [T, d] that `change` computes for
// query i from the keys before it.
template <class Change>
double deviation(const EncodingChoice& choice, const Tensor& x, DType dtype, const testing::ParameterMaker& parameters,
                 Change&& change) {
  const NoGrad only_values;
  const Initializer start(1, StartValues::fan_in, dtype, default_device());
  ModelOptions model;
  model.width = width, model.heads = 1, model.layers = 1;
  EncodingSetup setup = EncodingSetup::of(model, length, start);
  setup.make_parameter = [&](std::string_view name, const Shape& shape, const Fill& fill, Scope) {
    return parameters(name, shape, fill).to(dtype);
  };
  const auto encoding = std::move(choice.make(setup).front().encoding);
  const Shape rows{1, 1, length, width};
  const Tensor q = normal_tensor("q", rows), k = normal_tensor("k", rows), own_x = x.to(dtype), own_q = q.to(dtype),
               own_k = k.to(dtype);
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  const AttentionInput in{own_x, own_q, own_k, own_k, scale};
  const std::vector<double> found =
      composed_logits({own_q, own_k, own_k, scale}, score_of(*encoding, in)).to(DType::f64).to_vector<double>();

  const auto numbers_q = q.to_vector<double>(), numbers_k = k.to_vector<double>();
  std::vector<double> keys;
  double worst = 0;
  for (std::size_t i = 0; i < length; ++i) {
    for (std::size_t j = 0; j < i; ++j) change(&keys[j * width], i);
    for (std::size_t n = 0; n < width; ++n) keys.push_back(numbers_k[i * width + n]);
    for (std::size_t j = 0; j <= i; ++j) {
      double product = 0;
      for (std::size_t n = 0; n < width; ++n) product += numbers_q[i * width + n] * keys[j * width + n];
      const double difference = std::abs(product * scale - found[i * length + j]);
      if (!(difference <= worst)) worst = difference;
    }
  }
  return worst;
}

// Tokens of three kinds, one of them many times in a row.
Tensor repeated_text() {
  const Tensor kinds = normal_tensor("kinds", {3, width});
  std::vector<Tensor> rows;
  for (std::int64_t t = 0; t < length; ++t) {
    const std::int64_t kind = t > 20 && t < 70 ? 0 : t * t % 3;
    rows.push_back(slice(kinds, 0, kind, kind + 1));
  }
  return unsqueeze(concat(rows, 0), 0);
}

TEST_P(MovingKeys, OfPathAreThoseOfOneMatrixAfterTheOther) {
  EncodingChoice choice = EncodingChoice::parse("path");
  choice.set_option("rank", "0");
  choice.set_option("conv", "false");
  for (const Tensor& x : {normal_tensor("x", {1, length, width}), repeated_text()}) {
    const Tensor map = normal_tensor("map", {width, width});
    const auto parameters = [&](std::string_view name, const Shape& shape, const Fill&) {
      if (name == "path.direction.weight") return map;
      return Tensor::full(shape, name == "path.strength.bias" ? 4.0 : 0.0, DType::f64, default_device());
    };
    const double strength = 2 / (1 + std::exp(-4.0));
    const std::vector<double> y = linear(x, map).to_vector<double>();
    const auto change = [&](double* key, std::size_t i) {
      const double* row = &y[i * width];
      double square = 1e-6, along = 0;
      for (std::size_t n = 0; n < width; ++n) square += row[n] * row[n], along += row[n] * key[n];
      for (std::size_t n = 0; n < width; ++n) key[n] -= strength * along / square * row[n];
    };
    EXPECT_LT(deviation(choice, x, DType::f64, parameters, change), 1e-12);
    EXPECT_LT(deviation(choice, x, DType::f32, parameters, change), 1e-4);
  }
}

TEST_P(MovingKeys, OfWallFadeByEveryToken) {
  const Tensor x = normal_tensor("x", {1, length, width}), map = normal_tensor("map", {width, width}, 10);
  const auto parameters = [&](std::string_view name, const Shape& shape, const Fill&) {
    return name == "wall.decay.weight" ? map : Tensor::full(shape, 0.0, DType::f64, default_device());
  };
  const std::vector<double> opening = linear(x, map).to_vector<double>();
  const auto change = [&](double* key, std::size_t i) {
    for (std::size_t n = 0; n < width; ++n) key[n] /= 1 + std::exp(-opening[i * width + n]);
  };
  // Decays as small as e^-100 a token: nothing overflows.
  const EncodingChoice choice = EncodingChoice::parse("wall");
  EXPECT_LT(deviation(choice, x, DType::f64, parameters, change), 1e-12);
  EXPECT_LT(deviation(choice, x, DType::f32, parameters, change), 1e-4);
}

}  // namespace moving_keys_test
}  // namespace tally
