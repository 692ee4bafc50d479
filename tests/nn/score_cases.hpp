// What tests of tiled attention share: every shape that joins a score, attention of it in both forms.
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
#include "nn/composed.hpp"
#include "tests/devices.hpp"
#include "tests/nn/encoding_cases.hpp"
#include "tests/nn/pair_policies.hpp"

namespace tally::testing {

struct Sizes {
  std::int64_t batch, heads, length, width, value_width;
  std::int64_t shared_by = 1;  // heads of queries that have the same keys
  std::int64_t key_heads() const { return heads / shared_by; }
};

// The parts of a score and how its tensors are made; every tensor comes from `leaf`, so that gradients can be compared.
using Leaf = std::function<Tensor(const std::string& name, const Shape& shape, double deviation, DType dtype)>;
using Make = std::function<void(const Sizes& sizes, const Leaf& leaf, Score& score)>;

struct ShapeCase {
  std::string name;
  Make make;
  // Whether rounding decides between two derivatives somewhere: at positions beside an integer, where the table bends,
  // or where a hidden unit does.
  bool kinks = false;
  Visible visible = {};
  bool all_tokens = false;  // as many queries as keys
};

inline Tensor times(const Tensor& x, double factor) { return multiply(x, factor); }

inline void break_stick(Score& score, bool attend_current = false) {
  score.set_scan(stick_breaking(attend_current));
  score.set_normaliser({Normaliser::Kind::exp});
}

std::vector<ShapeCase> moved_cases();

// Those that every device has, and on the CPU those with queries that move.
inline std::vector<ShapeCase> shape_cases() {
  const auto gates = [](const Sizes& s, const Leaf& leaf) {
    return Gates{leaf("gate_query", {s.batch, s.heads, s.length, s.width}, 1, DType::f64),
                 leaf("gate_key", {s.batch, s.key_heads(), s.length, s.width}, 1, DType::f64)};
  };
  const auto table = [](const Sizes& s, const Leaf& leaf, std::int64_t positions) {
    return leaf("z", {s.batch, s.heads, s.length, positions + 1}, 1, DType::f64);
  };
  using Kind = Normaliser::Kind;
  const auto rest = [](const Sizes& s, const Leaf& leaf) {
    return leaf("rest", {s.batch, s.heads, s.length, s.value_width}, 1, DType::f64);
  };
  const auto sink = [](const Sizes& s, const Leaf& leaf) {
    return Normaliser{Kind::softmax, leaf("sink", {s.heads}, 2, DType::f64)};
  };
  std::vector<ShapeCase> cases{
      {"plain", [](const Sizes&, const Leaf&, Score&) {}},
      {"table",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualTable{table(s, leaf, 16), {}});
       },
       true},
      {"table_never_saturated",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualTable{table(s, leaf, s.length + 1), {}});
       },
       true},
      {"table_straight",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         const Tensor places = add(cumsum(Tensor::full({s.length + 2}, 1.0, DType::f64, default_device())), -1.0);
         const Tensor rise = leaf("rise", {s.batch, s.heads, s.length, 1}, 0.2, DType::f64);
         score.set_scan(
             ContextualTable{rise * (places.dtype() == rise.dtype() ? places : places.to(rise.dtype())), {}});
       }},
      {"table_always_saturated",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualTable{table(s, leaf, 0), {}});
       }},
      {"table_own_gates",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualTable{table(s, leaf, 9), gates(s, leaf)});
       },
       true},
      {"slope", [](const Sizes& s, const Leaf& leaf,
                   Score& score) { score.set_scan(contextual_slope(leaf("slope", {s.heads}, 0.1, DType::f64))); }},
      {"slope_own_gates",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(contextual_slope(leaf("slope", {s.heads}, 0.1, DType::f64), gates(s, leaf)));
       }},
      {"mlp",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualMlp{leaf("u", {s.batch, s.heads, s.length, 5}, 0.3, DType::f64),
                                      leaf("w", {5}, 0.3, DType::f64),
                                      leaf("b", {5}, 1, DType::f64),
                                      {}});
       },
       true},
      {"mlp_own_gates",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualMlp{leaf("u", {s.batch, s.heads, s.length, 5}, 0.3, DType::f64),
                                      leaf("w", {5}, 0.3, DType::f64), leaf("b", {5}, 1, DType::f64), gates(s, leaf)});
       },
       true},
      {"pair_threshold",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         const Tensor rows = leaf("rows", {s.batch, s.heads, s.length, 2}, 0.3, DType::f64);
         score.set_scan(Pair{&threshold_policy(), rows});
         score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length}, 1, DType::f64)});
       },
       true},
      {"pair_threshold_in_a_window_with_rest",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(Pair{&threshold_policy(), leaf("rows", {s.batch, s.heads, s.length, 2}, 0.3, DType::f64)});
         score.set_normaliser({Kind::softpick, {}, 0, rest(s, leaf)});
       },
       true,
       {.window = 30, .first = 2}},
      {"pair_reading",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(Pair{&reading_policy(), leaf("rows", {s.batch, s.heads, s.length, 2}, 0.5, DType::f64),
                             leaf("heads", {s.heads, 2}, 0.5, DType::f64), gates(s, leaf)});
       },
       true},
      {"pair_reading_the_score",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(Pair{&reading_policy(), leaf("rows", {s.batch, s.heads, s.length, 2}, 0.5, DType::f64),
                             leaf("heads", {s.heads, 2}, 0.5, DType::f64)});
         score.set_normaliser(sink(s, leaf));
       },
       true},
      {"pair_without_a_sum",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(Pair{&bounded_policy(), {}, abs(leaf("heads", {s.heads, 1}, 1, DType::f64)) + 1.0});
         score.biases.push_back(RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, 7}, 1, DType::f64), true});
         score.biases.push_back(Product{leaf("r", {s.batch, s.heads, s.length, 3}, 0.5, DType::f64),
                                        leaf("g", {s.batch, s.key_heads(), s.length, 3}, 1, DType::f64)});
       }},
      {"stick", [=](const Sizes&, const Leaf&, Score& score) { break_stick(score, false); }},
      {"stick_attend_current", [=](const Sizes&, const Leaf&, Score& score) { break_stick(score, true); }},
      {"stick_remainder",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         break_stick(score, false);
         score.normaliser.rest = rest(s, leaf);
       }},
      {"sink", [=](const Sizes& s, const Leaf& leaf, Score& score) { score.set_normaliser(sink(s, leaf)); }},
      {"sink_with_rest_and_slope",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(contextual_slope(leaf("slope", {s.heads}, 0.1, DType::f64)));
         score.set_normaliser(sink(s, leaf));
         score.normaliser.rest = rest(s, leaf);
       }},
      {"sigmoid",
       [](const Sizes&, const Leaf&, Score& score) {
         score.set_normaliser({Kind::sigmoid, {}, 1.5});
       }},
      {"sigmoid_with_rest_and_mlp",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualMlp{leaf("u", {s.batch, s.heads, s.length, 5}, 0.3, DType::f64),
                                      leaf("w", {5}, 0.3, DType::f64), leaf("b", {5}, 1, DType::f64), gates(s, leaf)});
         score.set_normaliser({Kind::sigmoid, {}, 4, rest(s, leaf)});
       },
       true},
      {"softpick", [](const Sizes&, const Leaf&, Score& score) { score.set_normaliser({Kind::softpick}); }},
      {"softpick_with_rest_and_table",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualTable{table(s, leaf, 16), {}});
         score.set_normaliser({Kind::softpick, {}, 0, rest(s, leaf)});
       },
       true},
      // Windows beside tiles of keys and rows, within them and over several.
      {"window", [](const Sizes&, const Leaf&, Score&) {}, false, {.window = 40}},
      {"window_of_itself", [](const Sizes&, const Leaf&, Score&) {}, false, {.window = 1}},
      {"window_and_first",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, 7}, 1, DType::f64), true});
       },
       false,
       {.window = 20, .first = 3}},
      {"chunks",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(Dense{leaf("dense", {1, s.heads, s.length, s.length}, 1, DType::f64)});
         score.biases.push_back(RowColumn{{}, leaf("column", {s.batch, s.heads, s.length}, 1, DType::f64)});
       },
       false,
       {.chunk = 33}},
      {"table_in_a_window",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualTable{table(s, leaf, 9), gates(s, leaf)});
       },
       true,
       {.window = 25, .first = 2}},
      {"slope_in_a_window",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(contextual_slope(leaf("slope", {s.heads}, 0.1, DType::f64)));
       },
       false,
       {.window = 25, .first = 2}},
      {"stick_in_chunks",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         break_stick(score, false);
         score.normaliser.rest = rest(s, leaf);
         score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length}, 1, DType::f64)});
       },
       false,
       {.window = 50, .chunk = 33}},
      {"softpick_in_a_window",
       [](const Sizes&, const Leaf&, Score& score) { score.set_normaliser({Kind::softpick}); },
       false,
       {.window = 30}},
      {"toeplitz",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length + 3}, 1, DType::f64)});
       }},
      // Falls so fast that far tiles are left out.
      {"toeplitz_steep",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         const Tensor distance = cumsum(Tensor::full({1, s.length}, 1.0, DType::f64, default_device()));
         const Tensor slopes = abs(leaf("slopes", {s.heads, 1}, 1, DType::f64)) + 0.5;
         score.biases.push_back(Toeplitz{negate(slopes * distance.to(slopes.dtype()))});
       }},
      {"row_column",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         const Tensor falling = times(cumsum(abs(leaf("falling", {s.batch, s.heads, s.length}, 1, DType::f64))), -0.2);
         score.biases.push_back(RowColumn{falling + 500.0, negate(falling) + -500.0});
       }},
      // Sums that begin at 0, as those of forget gates, and fall beyond where e^-sum is a number.
      {"row_column_from_zero",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         const Tensor total = negate(cumsum(abs(leaf("falling", {s.batch, s.heads, s.length}, 1, DType::f64)) + 6.0));
         score.biases.push_back(RowColumn{total, negate(total)});
       }},
      {"column_alone",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(RowColumn{{}, leaf("column", {s.batch, s.heads, s.length}, 1, DType::f64)});
       }},
      {"row_alone",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(RowColumn{leaf("row", {s.batch, s.heads, s.length}, 1, DType::f64), {}});
       }},
      {"row_toeplitz",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, s.length}, 1, DType::f64)});
       }},
      {"row_toeplitz_short",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, 7}, 1, DType::f64)});
       }},
      {"row_toeplitz_capped",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, 7}, 1, DType::f64), true});
       }},
      {"dense",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(Dense{leaf("dense", {1, s.heads, s.length, s.length}, 1, DType::f64)});
       }},
      {"product",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(Product{leaf("r", {s.batch, s.heads, s.length, 3}, 0.5, DType::f64),
                                        leaf("g", {s.batch, s.key_heads(), s.length, 3}, 1, DType::f64)});
       }},
      // Gates see the score without the product.
      {"slope_and_product",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(contextual_slope(leaf("slope", {s.heads}, 0.1, DType::f64)));
         score.biases.push_back(Product{leaf("r", {s.batch, s.heads, s.length, 3}, 0.5, DType::f64),
                                        leaf("g", {s.batch, s.key_heads(), s.length, 3}, 1, DType::f64)});
       }},
      {"table_and_every_bias",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.set_scan(ContextualTable{table(s, leaf, 16), gates(s, leaf)});
         score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length}, 1, DType::f64)});
         score.biases.push_back(RowColumn{{}, leaf("column", {s.batch, s.heads, s.length}, 1, DType::f64)});
         score.biases.push_back(RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, 7}, 1, DType::f64)});
         score.biases.push_back(Dense{leaf("dense", {s.batch, 1, s.length, s.length}, 1, DType::f64)});
       },
       true},
      {"stick_and_toeplitz",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         break_stick(score, false);
         score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length}, 1, DType::f64)});
       }},
  };
  if (default_device() == Device{}) {
    for (const ShapeCase& one : moved_cases()) cases.push_back(one);
  }
  return cases;
}

// The numbers of a leaf by its name.
using Values = std::function<Tensor(const std::string& name, const Shape& shape, double deviation)>;

// Others for every draw.
inline Values drawn(int draw) {
  return [draw](const std::string& name, const Shape& shape, double deviation) {
    return normal_tensor(draw == 0 ? name : concat(name, " ", draw), shape, deviation);
  };
}

struct Inputs {
  std::map<std::string, Tensor> leaves;
  AttentionOperands operands;
  Score score;
};

inline Inputs make_inputs(const ShapeCase& one, const Sizes& sizes, DType dtype, const Values& values) {
  Inputs made;
  const Leaf leaf = [&](const std::string& name, const Shape& shape, double deviation, DType) {
    Tensor tensor = values(name, shape, deviation).to(dtype);
    set_requires_grad(tensor);
    return made.leaves[name] = tensor;
  };
  made.operands = {leaf("q", {sizes.batch, sizes.heads, sizes.length, sizes.width}, 1.5, dtype),
                   leaf("k", {sizes.batch, sizes.key_heads(), sizes.length, sizes.width}, 1.5, dtype),
                   leaf("v", {sizes.batch, sizes.key_heads(), sizes.length, sizes.value_width}, 1, dtype),
                   1.0 / std::sqrt(static_cast<double>(sizes.width)), one.visible};
  one.make(sizes, leaf, made.score);
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
  const Pass pass{.training = true, .step = {.seed = 3, .number = 5}};
  in.dropout = drop.rate(pass);
  in.dropout_stream = drop.stream(pass, 1);
  struct Plain final : Encoding {};
  AttentionInput plain{in.q, in.q, in.k, in.v, in.scale};
  plain.visible = in.visible;
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

// Several tiles of keys; those of a GPU are smaller, and slower to execute here.
inline std::int64_t several_tiles() { return default_device() == testing::on_cuda_host ? 100 : 300; }

inline void expect_equal(const Outcome& tiled, const Outcome& composed) {
  EXPECT_LE(largest_difference(tiled.output, composed.output), 1e-10 * largest(composed.output));
  // Within one block no query moves: what it would read gets no gradient in the composed form, and 0 in tiles.
  for (const auto& [name, found] : tiled.gradients) {
    if (!composed.gradients.contains(name)) {
      EXPECT_EQ(largest(found), 0) << name;
    }
  }
  for (const auto& [name, expected] : composed.gradients) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(tiled.gradients.contains(name));
    EXPECT_LE(largest_difference(tiled.gradients.at(name), expected), 1e-10 * std::max(1e-3, largest(expected)));
  }
}

}  // namespace tally::testing
