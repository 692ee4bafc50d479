// Every score shape, for the tests of tiled attention.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "autograd/ops.hpp"
#include "core/device/device.hpp"
#include "tests/nn/score_mods.hpp"
#include "tests/nn/shape_case.hpp"
#include "tests/nn/share.hpp"

namespace tally::testing {

inline Tensor times(const Tensor& x, double factor) { return multiply(x, factor); }

// Products with a vector for each distance.
inline std::vector<ShapeCase> product_cases() {
  using X = ShapeParts;
  return {
      {"toeplitz_product", [](const X& x) { x.product_by_distance(1, 1, x.s.length); }},
      {"toeplitz_product_long",
       [](const X& x) { x.product_by_distance(x.s.batch, 1, x.s.length + 3); },
       false,
       {.window = 30}},
      {"toeplitz_product_short",
       [](const X& x) { x.product_by_distance(x.s.batch, x.s.key_heads(), std::min<std::int64_t>(x.s.length, 40)); }},
      {"toeplitz_product_capped_in_a_window",
       [](const X& x) { x.product_by_distance(1, x.s.heads, std::min<std::int64_t>(x.s.length, 9), true); },
       false,
       {.window = 30, .first = 2}},
      {"toeplitz_products_and_table",
       [](const X& x) {
         x.score.add_score_mod(contextual_table(x.table(16)));
         for (const char* const one : {"1", "2"}) x.product_by_distance(1, 1, x.s.length, true, one);
       },
       true},
  };
}

// Score modifications that do not read the score, or only compare it. Then q and k get no gradient in any form.
inline std::vector<ShapeCase> unread_cases() {
  using X = ShapeParts;
  const auto apart = [](const X& x, const Gates& gates) {
    x.score.add_score_mod(
        AppliedScoreMod{&apart_score_mod(), x.by_query("rows", 1, 0.5), x.by_head("heads", 1, 0.3), gates});
  };
  return {{"score_mod_apart",
           [=](const X& x) {
             apart(x, x.gates());
             x.by_row(7, true);
           }},
          // Scores have a gradient through the gates.
          {"pair_apart_with_gates_of_the_score", [=](const X& x) { apart(x, {}); }, false, {.window = 30, .first = 2}},
          {"score_mod_overruled", [](const X& x) {
             x.score.add_score_mod(AppliedScoreMod{&overruled_score_mod(), x.by_query("rows", 1, 0.5)});
             x.by_row(7, true);
             x.toeplitz();
             x.product();
           }}};
}

inline std::vector<ShapeCase> shape_cases() {
  using X = ShapeParts;
  using Kind = SoftmaxRule::Kind;
  const auto table = [](const X& x, std::int64_t last, const Gates& gates = {}) {
    x.score.add_score_mod(contextual_table(x.table(last), gates));
  };
  const auto threshold = [](const X& x) {
    x.score.add_score_mod(AppliedScoreMod{&threshold_score_mod(), x.by_query("rows", 2, 0.3)});
  };
  const auto reading = [](const X& x, const Gates& gates) {
    x.score.add_score_mod(
        AppliedScoreMod{&reading_score_mod(), x.by_query("rows", 2, 0.5), x.by_head("heads", 2, 0.5), gates});
  };
  const auto graded = [](const X& x, const Gates& gates) {
    x.score.add_score_mod(
        AppliedScoreMod{&graded_score_mod(), abs(x.by_query("rows", 1, 0.2)), {}, gates, x.table(12)});
  };
  std::vector<ShapeCase> cases{
      {"plain", [](const X&) {}},
      {"table", [=](const X& x) { table(x, 16); }, true},
      {"table_never_saturated", [=](const X& x) { table(x, x.s.length + 1); }, true},
      {"table_straight",
       [](const X& x) {
         const Tensor places = add(cumsum(Tensor::full({x.s.length + 2}, 1.0, DType::f64, default_device())), -1.0);
         const Tensor rise = x.by_query("rise", 1, 0.2);
         x.score.add_score_mod(contextual_table(rise * places.to(rise.dtype())));
       }},
      {"table_always_saturated", [=](const X& x) { table(x, 0); }},
      {"table_own_gates", [=](const X& x) { table(x, 9, x.gates()); }, true},
      {"slope", [](const X& x) { x.slope(); }},
      {"slope_own_gates", [](const X& x) { x.slope(x.gates()); }},
      {"segments", [](const X& x) { x.segments(); }, true},
      {"segments_own_gates", [](const X& x) { x.segments(x.gates()); }, true},
      {"score_mod_threshold",
       [=](const X& x) {
         threshold(x);
         x.toeplitz();
       },
       true},
      {"pair_threshold_in_a_window_with_rest",
       [=](const X& x) {
         threshold(x);
         x.score.set_softmax_rule({Kind::softpick, {}, 0, x.rest()});
       },
       true,
       {.window = 30, .first = 2}},
      {"score_mod_reading", [=](const X& x) { reading(x, x.gates()); }, true},
      {"pair_reading_the_score",
       [=](const X& x) {
         reading(x, {});
         x.sink();
       },
       true},
      {"pair_with_a_table",
       [=](const X& x) {
         graded(x, x.gates());
         x.sink();
         x.by_row(7, true);
       },
       true},
      {"pair_with_a_table_in_a_window", [=](const X& x) { graded(x, {}); }, true, {.window = 30, .first = 2}},
      {"pair_between_knots",
       [](const X& x) {
         AppliedScoreMod pair{&bent_score_mod(), abs(x.by_query("rows", 1)), x.by_head("heads", 1, 1)};
         const HiddenSegments hidden = hidden_segments(x.leaf("w", {7}, 1), x.leaf("b", {7}, 2));
         pair.table = matmul(x.by_query("u", 7, 0.5), hidden.units);
         pair.knots = hidden.knots;
         x.score.add_score_mod(pair);
       },
       true},
      {"table_by_distance_and_product",
       [](const X& x) {
         AppliedScoreMod pair{&binned_score_mod(), {}, abs(x.by_head("heads", 1, 1))};
         pair.table = x.table(9);
         x.score.add_score_mod(pair);
         x.product();
       }},
      {"pair_without_a_sum",
       [](const X& x) {
         x.score.add_score_mod(AppliedScoreMod{&bounded_score_mod(), {}, abs(x.by_head("heads", 1, 1)) + 1.0});
         x.by_row(7, true);
         x.product();
       }},
      {"stick", [](const X& x) { x.stick(); }},
      {"stick_attend_current", [](const X& x) { x.stick(true); }},
      {"stick_remainder",
       [](const X& x) {
         x.stick();
         x.score.softmax_rule.rest = x.rest();
       }},
      {"sink", [](const X& x) { x.sink(); }},
      {"sink_with_rest_and_slope",
       [](const X& x) {
         x.slope();
         x.sink();
         x.score.softmax_rule.rest = x.rest();
       }},
      {"sigmoid",
       [](const X& x) {
         x.score.set_softmax_rule({Kind::sigmoid, {}, 1.5});
       }},
      {"sigmoid_with_rest_and_segments",
       [](const X& x) {
         x.segments(x.gates());
         x.score.set_softmax_rule({Kind::sigmoid, {}, 4, x.rest()});
       },
       true},
      {"softpick", [](const X& x) { x.score.set_softmax_rule({Kind::softpick}); }},
      {"softpick_with_rest_and_table",
       [=](const X& x) {
         table(x, 16);
         x.score.set_softmax_rule({Kind::softpick, {}, 0, x.rest()});
       },
       true},
      {"window", [](const X&) {}, false, {.window = 40}},
      {"window_of_itself", [](const X&) {}, false, {.window = 1}},
      {"window_and_first", [](const X& x) { x.by_row(7, true); }, false, {.window = 20, .first = 3}},
      {"chunks",
       [](const X& x) {
         x.dense(1, x.s.heads);
         x.column();
       },
       false,
       {.chunk = 33}},
      // Windows within tiles of keys and rows, and over several tiles.
      {"table_in_a_window", [=](const X& x) { table(x, 9, x.gates()); }, true, {.window = 25, .first = 2}},
      {"slope_in_a_window", [](const X& x) { x.slope(); }, false, {.window = 25, .first = 2}},
      {"stick_in_chunks",
       [](const X& x) {
         x.stick();
         x.score.softmax_rule.rest = x.rest();
         x.toeplitz();
       },
       false,
       {.window = 50, .chunk = 33}},
      {"softpick_in_a_window", [](const X& x) { x.score.set_softmax_rule({Kind::softpick}); }, false, {.window = 30}},
      {"toeplitz", [](const X& x) { x.toeplitz(3); }},
      // Falls so fast that far tiles are left out.
      {"toeplitz_steep",
       [](const X& x) {
         const Tensor distance = cumsum(Tensor::full({1, x.s.length}, 1.0, DType::f64, default_device()));
         const Tensor slopes = abs(x.by_head("slopes", 1, 1)) + 0.5;
         x.score.biases.push_back(Toeplitz{negate(slopes * distance.to(slopes.dtype()))});
       }},
      {"row_column",
       [](const X& x) {
         const Tensor falling = times(cumsum(abs(x.of_keys("falling"))), -0.2);
         x.score.biases.push_back(RowColumn{falling + 500.0, negate(falling) + -500.0});
       }},
      // Sums that begin at 0, like forget gates' sums, and fall beyond the range where e^-sum is a number.
      {"row_column_from_zero",
       [](const X& x) {
         const Tensor total = negate(cumsum(abs(x.of_keys("falling")) + 6.0));
         x.score.biases.push_back(RowColumn{total, negate(total)});
       }},
      {"column_alone", [](const X& x) { x.column(); }},
      {"row_alone", [](const X& x) { x.row(); }},
      {"row_toeplitz", [](const X& x) { x.by_row(x.s.length); }},
      {"row_toeplitz_short", [](const X& x) { x.by_row(); }},
      {"row_toeplitz_capped", [](const X& x) { x.by_row(7, true); }},
      {"dense", [](const X& x) { x.dense(1, x.s.heads); }},
      {"product", [](const X& x) { x.product(); }},
      // Gates use the score without the product.
      {"slope_and_product",
       [](const X& x) {
         x.slope();
         x.product();
       }},
      {"table_and_every_bias",
       [=](const X& x) {
         table(x, 16, x.gates());
         x.toeplitz();
         x.column();
         x.by_row();
         x.dense(x.s.batch, 1);
       },
       true},
      // Gates from the score, which a product is added to.
      {"table_and_every_bias_and_product",
       [=](const X& x) {
         table(x, 16);
         x.toeplitz(2);
         x.score.biases.push_back(RowColumn{x.of_queries("row"), x.of_keys("column")});
         x.by_row(7, true);
         x.dense(x.s.batch, 1);
         x.product();
       },
       true},
      {"segments_in_a_window",
       [](const X& x) {
         x.segments();
         x.sink();
         x.row();
         x.column();
       },
       true,
       {.window = 30, .first = 2}},
      {"row_factor",
       [](const X& x) {
         x.score.row_factor = x.leaf("row_factor", {x.s.batch, x.s.heads, x.s.length}, 0.5);
       }},
      {"stick_and_toeplitz",
       [](const X& x) {
         x.stick();
         x.toeplitz();
       }},
  };
  for (const auto& more : {unread_cases(), product_cases()}) cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

}  // namespace tally::testing
