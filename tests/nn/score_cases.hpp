// Shared by tests of tiled attention: attention with every score shape in both forms.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "nn/attention/composed.hpp"
#include "tests/devices.hpp"
#include "tests/nn/encoding_cases.hpp"
#include "tests/nn/score_shapes.hpp"

namespace tally::testing {

// The numbers of a leaf by its name.
using Values = std::function<Tensor(const std::string& name, const Shape& shape, double deviation)>;

// Others for every draw.
inline Values drawn(int draw) {
  return [draw](const std::string& name, const Shape& shape, double deviation) {
    return normal_tensor(draw == 0 ? name : formatted("{} {}", name, draw), shape, deviation);
  };
}

struct Inputs {
  std::map<std::string, Tensor> leaves;
  AttentionOperands operands;
  Score score;
};

inline Inputs make_inputs(const ShapeCase& one, const Sizes& sizes, DType dtype, const Values& values) {
  Inputs made;
  const Leaf leaf = [&](const std::string& name, const Shape& shape, double deviation) {
    Tensor tensor = values(name, shape, deviation).to(dtype);
    set_requires_grad(tensor);
    return made.leaves[name] = tensor;
  };
  made.operands = {leaf("q", {sizes.batch, sizes.heads, sizes.length, sizes.width}, 1.5),
                   leaf("k", {sizes.batch, sizes.key_heads(), sizes.length, sizes.width}, 1.5),
                   leaf("v", {sizes.batch, sizes.key_heads(), sizes.length, sizes.value_width}, 1),
                   1.0 / std::sqrt(static_cast<double>(sizes.width)), one.mask};
  one.make({sizes, leaf, made.score});
  for (Bias& bias : made.score.biases) {
    if (auto* row_column = std::get_if<RowColumn>(&bias)) {
      if (row_column->row.defined()) row_column->row = cast(row_column->row, DType::f64);
      if (row_column->column.defined()) row_column->column = cast(row_column->column, DType::f64);
    }
  }
  return made;
}

struct Outcome {
  Tensor output;
  std::map<std::string, Tensor> gradients;
};

inline Outcome compute(const ShapeCase& one, const Sizes& sizes, DType dtype, bool tiled, double dropout = 0,
                       const Values& values = drawn(0)) {
  Inputs inputs = make_inputs(one, sizes, dtype, values);
  AttentionOperands& in = inputs.operands;
  Outcome outcome;
  const Dropout drop(Initializer(0, StartValues::gpt2), "weights", dropout);
  const ForwardContext pass{.training = true, .step = {.seed = 3, .number = 5}};
  in.dropout = drop.rate(pass);
  in.dropout_stream = drop.stream(pass, 1);
  struct Plain final : Encoding {};
  AttentionInput plain{in.q, in.q, in.k, in.v, in.scale};
  plain.mask = in.mask;
  outcome.output =
      tiled ? tiled_attention(in, inputs.score) : composed_attention(in, inputs.score, Plain{}, plain, drop, pass);
  backward(outcome.output, normal_tensor("d_output", outcome.output.shape()).to(dtype));
  for (const auto& [name, tensor] : inputs.leaves) {
    if (gradient(tensor).defined()) outcome.gradients[name] = gradient(tensor);
  }
  return outcome;
}

inline double largest(const Tensor& x) {
  const std::vector<double> values = x.to(DType::f64).to_vector<double>();
  double result = 0;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

inline double largest_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to(DType::f64).to_vector<double>(), y = b.to(DType::f64).to_vector<double>();
  EXPECT_EQ(x.size(), y.size());
  double difference = 0;
  for (std::size_t n = 0; n < x.size(); ++n) {
    EXPECT_FALSE(std::isnan(x[n]) || std::isnan(y[n]));
    difference = std::max(difference, std::abs(x[n] - y[n]));
  }
  return difference;
}

// Several tiles of keys. A GPU's tiles are smaller, and slower to execute here.
inline std::int64_t several_tiles() { return default_device() == testing::on_cuda_host ? 100 : 300; }

inline void expect_equal(const Outcome& tiled, const Outcome& composed) {
  EXPECT_LE(largest_difference(tiled.output, composed.output), 1e-10 * largest(composed.output));
  // Within one block no query moves. Its movement gets no gradient in the composed form, and 0 in tiles.
  const std::vector<std::string> unmoved{"moved_queries", "moved_keys", "read", "taken", "channel_factor"};
  for (const auto& [name, found] : tiled.gradients) {
    if (composed.gradients.contains(name)) continue;
    EXPECT_EQ(std::ranges::count(unmoved, name), 1) << name << " has a gradient in tiles alone";
    EXPECT_EQ(largest(found), 0) << name;
  }
  for (const auto& [name, expected] : composed.gradients) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(tiled.gradients.contains(name));
    EXPECT_LE(largest_difference(tiled.gradients.at(name), expected), 1e-10 * std::max(1e-3, largest(expected)));
  }
}

inline void expect_same_bits(const Outcome& found, const Outcome& expected) {
  EXPECT_EQ(found.output.to_vector<float>(), expected.output.to_vector<float>());
  for (const auto& [name, value] : expected.gradients) {
    EXPECT_EQ(found.gradients.at(name).to_vector<float>(), value.to_vector<float>()) << name;
  }
}

}  // namespace tally::testing
