// Scores with sums down the queries.
#pragma once

#include <vector>

#include "autograd/ops.hpp"
#include "tests/nn/pair_policies.hpp"
#include "tests/nn/shape_case.hpp"

namespace tally::testing {

inline std::vector<ShapeCase> down_cases() {
  const auto reproached = [](const Sizes& s, const Leaf& leaf) {
    return Pair{&reproached_policy(), leaf("rows", {s.batch, s.heads, s.length, 2}, 0.5, DType::f64),
                leaf("heads", {s.heads, 1}, 0.3, DType::f64)};
  };
  return {{"pair_down",
           [=](const Sizes& s, const Leaf& leaf, Score& score) {
             Pair pair = reproached(s, leaf);
             pair.other = gates_of(s, leaf);
             score.set_scan(pair);
           },
           false,
           {},
           true},
          {"pair_down_of_the_score",
           [=](const Sizes& s, const Leaf& leaf, Score& score) {
             score.set_scan(reproached(s, leaf));
             score.set_normaliser({Normaliser::Kind::softmax, leaf("sink", {s.heads}, 2, DType::f64)});
             score.biases.push_back(RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, 7}, 1, DType::f64), true});
           },
           false,
           {},
           true},
          {"pair_down_in_a_window",
           [=](const Sizes& s, const Leaf& leaf, Score& score) {
             score.set_scan(reproached(s, leaf));
             score.set_normaliser({Normaliser::Kind::sigmoid, {}, 1});
           },
           false,
           {.window = 30, .first = 2},
           true},
          {"pair_down_after_biases",
           [](const Sizes& s, const Leaf& leaf, Score& score) {
             score.set_scan(Pair{&expelled_policy()});
             score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length}, 1, DType::f64)});
             score.set_normaliser({Normaliser::Kind::softpick,
                                   {},
                                   0,
                                   leaf("rest", {s.batch, s.heads, s.length, s.value_width}, 1, DType::f64)});
           },
           true,
           {.chunk = 33},
           true},
          {"pair_down_and_product",
           [](const Sizes& s, const Leaf& leaf, Score& score) {
             score.set_scan(Pair{&blamed_policy()});
             score.biases.push_back(Product{leaf("r", {s.batch, s.heads, s.length, 3}, 0.5, DType::f64),
                                            leaf("g", {s.batch, s.key_heads(), s.length, 3}, 1, DType::f64)});
           },
           true,
           {},
           true}};
}

}  // namespace tally::testing
