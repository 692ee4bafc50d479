// Tiled attention against the composed form of the same shapes: outputs and every gradient.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/cpu/parallel.hpp"
#include "nn/composed.hpp"
#include "tests/nn/encoding_cases.hpp"

namespace tally {
namespace {

using testing::normal_tensor;

struct Sizes {
  std::int64_t batch, heads, length, width, value_width;
};

// The parts of a score and how its tensors are made; every tensor comes from `leaf`, so that gradients can be compared.
using Leaf = std::function<Tensor(const std::string& name, const Shape& shape, double deviation, DType dtype)>;
using Make = std::function<void(const Sizes& sizes, const Leaf& leaf, Score& score)>;

struct ShapeCase {
  std::string name;
  Make make;
};

Tensor times(const Tensor& x, double factor) { return multiply(x, factor); }

std::vector<ShapeCase> shape_cases() {
  const auto gates = [](const Sizes& s, const Leaf& leaf) {
    return Gates{leaf("gate_key", {s.batch, s.heads, s.length, s.width}, 1, DType::f64)};
  };
  const auto table = [](const Sizes& s, const Leaf& leaf, std::int64_t positions) {
    return leaf("z", {s.batch, s.heads, s.length, positions + 1}, 1, DType::f64);
  };
  return {
      {"plain", [](const Sizes&, const Leaf&, Score&) {}},
      {"table", [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualTable{table(s, leaf, 16), {}});
       }},
      {"table_never_saturated", [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualTable{table(s, leaf, s.length + 1), {}});
       }},
      {"table_always_saturated", [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualTable{table(s, leaf, 0), {}});
       }},
      {"table_own_gates", [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualTable{table(s, leaf, 9), gates(s, leaf)});
       }},
      {"slope", [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualSlope{leaf("slope", {s.heads}, 0.1, DType::f64), {}});
       }},
      {"slope_own_gates", [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualSlope{leaf("slope", {s.heads}, 0.1, DType::f64), gates(s, leaf)});
       }},
      {"mlp", [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualMlp{leaf("u", {s.batch, s.heads, s.length, 5}, 0.3, DType::f64),
                                      leaf("w", {5}, 0.3, DType::f64), leaf("b", {5}, 1, DType::f64), {}});
       }},
      {"mlp_own_gates", [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualMlp{leaf("u", {s.batch, s.heads, s.length, 5}, 0.3, DType::f64),
                                      leaf("w", {5}, 0.3, DType::f64), leaf("b", {5}, 1, DType::f64), gates(s, leaf)});
       }},
      {"stick", [](const Sizes&, const Leaf&, Score& score) { score.set_scan(StickBreaking{}); }},
      {"stick_attend_current",
       [](const Sizes&, const Leaf&, Score& score) { score.set_scan(StickBreaking{true, {}}); }},
      {"stick_remainder", [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(StickBreaking{false, leaf("rest", {s.batch, s.heads, s.length, s.value_width}, 1, DType::f64)});
       }},
      {"toeplitz", [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length + 3}, 1, DType::f64)});
       }},
      // Falls so fast that far tiles are left out.
      {"toeplitz_steep", [](const Sizes& s, const Leaf& leaf, Score& score) {
         const Tensor distance = cumsum(Tensor::full({1, s.length}, 1.0, DType::f64));
         const Tensor slopes = abs(leaf("slopes", {s.heads, 1}, 1, DType::f64)) + 0.5;
         score.biases.push_back(Toeplitz{negate(slopes * distance)});
       }},
      {"row_column", [](const Sizes& s, const Leaf& leaf, Score& score) {
         const Tensor falling = times(cumsum(abs(leaf("falling", {s.batch, s.heads, s.length}, 1, DType::f64))), -0.2);
         score.biases.push_back(RowColumn{falling + 500.0, negate(falling) + -500.0});
       }},
      {"column_alone", [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(RowColumn{{}, leaf("column", {s.batch, s.heads, s.length}, 1, DType::f64)});
       }},
      {"row_alone", [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(RowColumn{leaf("row", {s.batch, s.heads, s.length}, 1, DType::f64), {}});
       }},
      {"row_toeplitz", [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, s.length}, 1, DType::f64)});
       }},
      {"row_toeplitz_short", [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, 7}, 1, DType::f64)});
       }},
      {"row_toeplitz_capped", [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, 7}, 1, DType::f64), true});
       }},
      {"dense", [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(Dense{leaf("dense", {1, s.heads, s.length, s.length}, 1, DType::f64)});
       }},
      {"table_and_every_bias", [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualTable{table(s, leaf, 16), gates(s, leaf)});
         score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length}, 1, DType::f64)});
         score.biases.push_back(RowColumn{{}, leaf("column", {s.batch, s.heads, s.length}, 1, DType::f64)});
         score.biases.push_back(RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, 7}, 1, DType::f64)});
         score.biases.push_back(Dense{leaf("dense", {s.batch, 1, s.length, s.length}, 1, DType::f64)});
       }},
      {"stick_and_toeplitz", [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(StickBreaking{});
         score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length}, 1, DType::f64)});
       }},
  };
}

struct Outcome {
  Tensor output;
  std::map<std::string, Tensor> gradients;
};

Outcome compute(const ShapeCase& one, const Sizes& sizes, DType dtype, bool tiled) {
  std::map<std::string, Tensor> leaves;
  const Leaf leaf = [&](const std::string& name, const Shape& shape, double deviation, DType) {
    Tensor tensor = normal_tensor(name, shape, deviation).to(dtype);
    set_requires_grad(tensor);
    return leaves[name] = tensor;
  };
  AttentionOperands in{leaf("q", {sizes.batch, sizes.heads, sizes.length, sizes.width}, 1.5, dtype),
                       leaf("k", {sizes.batch, sizes.heads, sizes.length, sizes.width}, 1.5, dtype),
                       leaf("v", {sizes.batch, sizes.heads, sizes.length, sizes.value_width}, 1, dtype),
                       leaf("unrotated", {sizes.batch, sizes.heads, sizes.length, sizes.width}, 1, dtype),
                       1.0 / std::sqrt(static_cast<double>(sizes.width))};
  Score score;
  one.make(sizes, leaf, score);
  for (Bias& bias : score.biases) {
    if (auto* row_column = std::get_if<RowColumn>(&bias)) {
      if (row_column->row.defined()) row_column->row = cast(row_column->row, DType::f64);
      if (row_column->column.defined()) row_column->column = cast(row_column->column, DType::f64);
    }
  }
  Outcome outcome;
  const Dropout none(Initializer(0, StartValues::gpt2), "weights", 0);
  struct Plain final : Encoding {};
  outcome.output = tiled ? tiled_attention(in, score) : composed_attention(in, score, Plain{}, none, Pass{});
  backward(outcome.output, normal_tensor("d_output", outcome.output.shape()).to(dtype));
  for (const auto& [name, tensor] : leaves) {
    if (gradient(tensor).defined()) outcome.gradients[name] = gradient(tensor);
  }
  return outcome;
}

double largest(const std::vector<double>& values) {
  double result = 0;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to(DType::f64).to_vector<double>(), y = b.to(DType::f64).to_vector<double>();
  EXPECT_EQ(x.size(), y.size());
  double difference = 0;
  for (std::size_t n = 0; n < x.size(); ++n) {
    EXPECT_FALSE(std::isnan(x[n]) || std::isnan(y[n]));
    difference = std::max(difference, std::abs(x[n] - y[n]));
  }
  return difference;
}

const std::vector<Sizes>& all_sizes() {
  // One token; fewer rows than lanes; a tile and a bit; several tiles of keys, several shares of a head; widths that are
  // no whole vectors.
  static const std::vector<Sizes> sizes{{2, 1, 1, 8, 8}, {1, 3, 5, 4, 3}, {1, 2, 67, 20, 17}, {1, 2, 300, 16, 16}};
  return sizes;
}

TEST(Tiled, EqualsTheComposedFormInDouble) {
  for (const ShapeCase& one : shape_cases()) {
    for (const Sizes& sizes : all_sizes()) {
      SCOPED_TRACE(concat(one.name, " T ", sizes.length));
      const Outcome tiled = compute(one, sizes, DType::f64, true), composed = compute(one, sizes, DType::f64, false);
      const double scale = largest(composed.output.to_vector<double>());
      EXPECT_LE(largest_difference(tiled.output, composed.output), 1e-10 * scale);
      EXPECT_EQ(tiled.gradients.size(), composed.gradients.size());
      for (const auto& [name, expected] : composed.gradients) {
        SCOPED_TRACE(name);
        ASSERT_TRUE(tiled.gradients.contains(name));
        EXPECT_LE(largest_difference(tiled.gradients.at(name), expected),
                  1e-10 * std::max(1e-3, largest(expected.to_vector<double>())));
      }
    }
  }
}

}  // namespace
}  // namespace tally
