// Every score shape, for the tests of tiled attention.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "autograd/ops.hpp"
#include "autograd/score.hpp"
#include "core/device/device.hpp"
#include "tests/nn/encoding_cases.hpp"
#include "tests/nn/product_cases.hpp"
#include "tests/nn/score_mods.hpp"
#include "tests/nn/shape_case.hpp"
#include "tests/nn/share.hpp"
#include "tests/nn/unread_cases.hpp"

namespace tally::testing {

inline Tensor times(const Tensor& x, double factor) { return multiply(x, factor); }

inline void break_stick(Score& score, bool attend_current = false) {
  score.add_score_mod(stick_breaking(attend_current));
  score.set_softmax_rule({SoftmaxRule::Kind::exp});
}

inline std::vector<ShapeCase> shape_cases() {
  const auto gates = gates_of;
  const auto table = [](const Sizes& s, const Leaf& leaf, std::int64_t positions) {
    return leaf("z", {s.batch, s.heads, s.length, positions + 1}, 1, DType::f64);
  };
  const auto segments = [](const Sizes& s, const Leaf& leaf, const Gates& own) {
    const HiddenSegments hidden = hidden_segments(leaf("w", {5}, 0.3, DType::f64), leaf("b", {5}, 1, DType::f64));
    const Tensor u = leaf("u", {s.batch, s.heads, s.length, 5}, 0.3, DType::f64);
    return contextual_segments(matmul(u, hidden.units), hidden.knots, own);
  };
  using Kind = SoftmaxRule::Kind;
  const auto rest = [](const Sizes& s, const Leaf& leaf) {
    return leaf("rest", {s.batch, s.heads, s.length, s.value_width}, 1, DType::f64);
  };
  const auto sink = [](const Sizes& s, const Leaf& leaf) {
    return SoftmaxRule{Kind::softmax, leaf("sink", {s.heads}, 2, DType::f64)};
  };
  std::vector<ShapeCase> cases{
      {"plain", [](const Sizes&, const Leaf&, Score&) {}},
      {"table",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.add_score_mod(contextual_table(table(s, leaf, 16)));
       },
       true},
      {"table_never_saturated",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.add_score_mod(contextual_table(table(s, leaf, s.length + 1)));
       },
       true},
      {"table_straight",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         const Tensor places = add(cumsum(Tensor::full({s.length + 2}, 1.0, DType::f64, default_device())), -1.0);
         const Tensor rise = leaf("rise", {s.batch, s.heads, s.length, 1}, 0.2, DType::f64);
         score.add_score_mod(
             contextual_table(rise * (places.dtype() == rise.dtype() ? places : places.to(rise.dtype()))));
       }},
      {"table_always_saturated", [=](const Sizes& s, const Leaf& leaf,
                                     Score& score) { score.add_score_mod(contextual_table(table(s, leaf, 0))); }},
      {"table_own_gates",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.add_score_mod(contextual_table(table(s, leaf, 9), gates(s, leaf)));
       },
       true},
      {"slope", [](const Sizes& s, const Leaf& leaf,
                   Score& score) { score.add_score_mod(contextual_slope(leaf("slope", {s.heads}, 0.1, DType::f64))); }},
      {"slope_own_gates",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.add_score_mod(contextual_slope(leaf("slope", {s.heads}, 0.1, DType::f64), gates(s, leaf)));
       }},
      {"segments", [=](const Sizes& s, const Leaf& leaf, Score& score) { score.add_score_mod(segments(s, leaf, {})); },
       true},
      {"segments_own_gates",
       [=](const Sizes& s, const Leaf& leaf, Score& score) { score.add_score_mod(segments(s, leaf, gates(s, leaf))); },
       true},
      {"score_mod_threshold",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         const Tensor rows = leaf("rows", {s.batch, s.heads, s.length, 2}, 0.3, DType::f64);
         score.add_score_mod(AppliedScoreMod{&threshold_score_mod(), rows});
         score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length}, 1, DType::f64)});
       },
       true},
      {"pair_threshold_in_a_window_with_rest",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.add_score_mod(
             AppliedScoreMod{&threshold_score_mod(), leaf("rows", {s.batch, s.heads, s.length, 2}, 0.3, DType::f64)});
         score.set_softmax_rule({Kind::softpick, {}, 0, rest(s, leaf)});
       },
       true,
       {.window = 30, .first = 2}},
      {"score_mod_reading",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.add_score_mod(AppliedScoreMod{&reading_score_mod(),
                                             leaf("rows", {s.batch, s.heads, s.length, 2}, 0.5, DType::f64),
                                             leaf("heads", {s.heads, 2}, 0.5, DType::f64), gates(s, leaf)});
       },
       true},
      {"pair_reading_the_score",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.add_score_mod(AppliedScoreMod{&reading_score_mod(),
                                             leaf("rows", {s.batch, s.heads, s.length, 2}, 0.5, DType::f64),
                                             leaf("heads", {s.heads, 2}, 0.5, DType::f64)});
         score.set_softmax_rule(sink(s, leaf));
       },
       true},
      {"pair_with_a_table",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         AppliedScoreMod pair{&graded_score_mod(), abs(leaf("rows", {s.batch, s.heads, s.length, 1}, 0.2, DType::f64))};
         pair.gates = gates(s, leaf);
         pair.table = table(s, leaf, 12);
         score.add_score_mod(pair);
         score.set_softmax_rule(sink(s, leaf));
         score.biases.push_back(RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, 7}, 1, DType::f64), true});
       },
       true},
      {"pair_with_a_table_in_a_window",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         AppliedScoreMod pair{&graded_score_mod(), abs(leaf("rows", {s.batch, s.heads, s.length, 1}, 0.2, DType::f64))};
         pair.table = table(s, leaf, 12);
         score.add_score_mod(pair);
       },
       true,
       {.window = 30, .first = 2}},
      {"pair_between_knots",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         AppliedScoreMod pair{&bent_score_mod(), abs(leaf("rows", {s.batch, s.heads, s.length, 1}, 1, DType::f64)),
                              leaf("heads", {s.heads, 1}, 1, DType::f64)};
         const HiddenSegments hidden = hidden_segments(leaf("w", {7}, 1, DType::f64), leaf("b", {7}, 2, DType::f64));
         pair.table = matmul(leaf("u", {s.batch, s.heads, s.length, 7}, 0.5, DType::f64), hidden.units);
         pair.knots = hidden.knots;
         score.add_score_mod(pair);
       },
       true},
      {"table_by_distance_and_product",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         AppliedScoreMod pair{&binned_score_mod(), {}, abs(leaf("heads", {s.heads, 1}, 1, DType::f64))};
         pair.table = table(s, leaf, 9);
         score.add_score_mod(pair);
         score.biases.push_back(Product{leaf("r", {s.batch, s.heads, s.length, 3}, 0.5, DType::f64),
                                        leaf("g", {s.batch, s.key_heads(), s.length, 3}, 1, DType::f64)});
       }},
      {"pair_without_a_sum",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.add_score_mod(
             AppliedScoreMod{&bounded_score_mod(), {}, abs(leaf("heads", {s.heads, 1}, 1, DType::f64)) + 1.0});
         score.biases.push_back(RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, 7}, 1, DType::f64), true});
         score.biases.push_back(Product{leaf("r", {s.batch, s.heads, s.length, 3}, 0.5, DType::f64),
                                        leaf("g", {s.batch, s.key_heads(), s.length, 3}, 1, DType::f64)});
       }},
      {"stick", [=](const Sizes&, const Leaf&, Score& score) { break_stick(score, false); }},
      {"stick_attend_current", [=](const Sizes&, const Leaf&, Score& score) { break_stick(score, true); }},
      {"stick_remainder",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         break_stick(score, false);
         score.softmax_rule.rest = rest(s, leaf);
       }},
      {"sink", [=](const Sizes& s, const Leaf& leaf, Score& score) { score.set_softmax_rule(sink(s, leaf)); }},
      {"sink_with_rest_and_slope",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.add_score_mod(contextual_slope(leaf("slope", {s.heads}, 0.1, DType::f64)));
         score.set_softmax_rule(sink(s, leaf));
         score.softmax_rule.rest = rest(s, leaf);
       }},
      {"sigmoid",
       [](const Sizes&, const Leaf&, Score& score) {
         score.set_softmax_rule({Kind::sigmoid, {}, 1.5});
       }},
      {"sigmoid_with_rest_and_segments",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.add_score_mod(segments(s, leaf, gates(s, leaf)));
         score.set_softmax_rule({Kind::sigmoid, {}, 4, rest(s, leaf)});
       },
       true},
      {"softpick", [](const Sizes&, const Leaf&, Score& score) { score.set_softmax_rule({Kind::softpick}); }},
      {"softpick_with_rest_and_table",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.add_score_mod(contextual_table(table(s, leaf, 16)));
         score.set_softmax_rule({Kind::softpick, {}, 0, rest(s, leaf)});
       },
       true},
      // Windows within tiles of keys and rows, and over several tiles.
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
         score.add_score_mod(contextual_table(table(s, leaf, 9), gates(s, leaf)));
       },
       true,
       {.window = 25, .first = 2}},
      {"slope_in_a_window",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.add_score_mod(contextual_slope(leaf("slope", {s.heads}, 0.1, DType::f64)));
       },
       false,
       {.window = 25, .first = 2}},
      {"stick_in_chunks",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         break_stick(score, false);
         score.softmax_rule.rest = rest(s, leaf);
         score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length}, 1, DType::f64)});
       },
       false,
       {.window = 50, .chunk = 33}},
      {"softpick_in_a_window",
       [](const Sizes&, const Leaf&, Score& score) { score.set_softmax_rule({Kind::softpick}); },
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
      // Sums that begin at 0, like forget gates' sums, and fall beyond the range where e^-sum is a number.
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
      // Gates use the score without the product.
      {"slope_and_product",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.add_score_mod(contextual_slope(leaf("slope", {s.heads}, 0.1, DType::f64)));
         score.biases.push_back(Product{leaf("r", {s.batch, s.heads, s.length, 3}, 0.5, DType::f64),
                                        leaf("g", {s.batch, s.key_heads(), s.length, 3}, 1, DType::f64)});
       }},
      {"table_and_every_bias",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.add_score_mod(contextual_table(table(s, leaf, 16), gates(s, leaf)));
         score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length}, 1, DType::f64)});
         score.biases.push_back(RowColumn{{}, leaf("column", {s.batch, s.heads, s.length}, 1, DType::f64)});
         score.biases.push_back(RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, 7}, 1, DType::f64)});
         score.biases.push_back(Dense{leaf("dense", {s.batch, 1, s.length, s.length}, 1, DType::f64)});
       },
       true},
      // Gates from the score, which a product is added to.
      {"table_and_every_bias_and_product",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.add_score_mod(contextual_table(table(s, leaf, 16)));
         score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length + 2}, 1, DType::f64)});
         score.biases.push_back(RowColumn{leaf("row", {s.batch, s.heads, s.length}, 1, DType::f64),
                                          leaf("column", {s.batch, s.heads, s.length}, 1, DType::f64)});
         score.biases.push_back(RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, 7}, 1, DType::f64), true});
         score.biases.push_back(Dense{leaf("dense", {s.batch, 1, s.length, s.length}, 1, DType::f64)});
         score.biases.push_back(Product{leaf("r", {s.batch, s.heads, s.length, 3}, 0.5, DType::f64),
                                        leaf("g", {s.batch, s.key_heads(), s.length, 3}, 1, DType::f64)});
       },
       true},
      {"segments_in_a_window",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         score.add_score_mod(segments(s, leaf, {}));
         score.set_softmax_rule(sink(s, leaf));
         score.biases.push_back(RowColumn{leaf("row", {s.batch, s.heads, s.length}, 1, DType::f64), {}});
         score.biases.push_back(RowColumn{{}, leaf("column", {s.batch, s.heads, s.length}, 1, DType::f64)});
       },
       true,
       {.window = 30, .first = 2}},
      {"row_factor",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.row_factor = leaf("row_factor", {s.batch, s.heads, s.length}, 0.5, DType::f64);
       }},
      {"stick_and_toeplitz",
       [=](const Sizes& s, const Leaf& leaf, Score& score) {
         break_stick(score, false);
         score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length}, 1, DType::f64)});
       }},
  };
  for (const ShapeCase& one : unread_cases()) cases.push_back(one);
  for (const ShapeCase& one : product_cases()) cases.push_back(one);
  return cases;
}

}  // namespace tally::testing
