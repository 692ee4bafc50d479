// Score modifications that do not read the score, or only compare it. Then q and k get no gradient in any form.
#pragma once

#include <vector>

#include "autograd/ops.hpp"
#include "tests/nn/score_mods.hpp"
#include "tests/nn/shape_case.hpp"

namespace tally::testing {

inline std::vector<ShapeCase> unread_cases() {
  const auto apart = [](const Sizes& s, const Leaf& leaf) {
    return AppliedScoreMod{&apart_score_mod(), leaf("rows", {s.batch, s.heads, s.length, 1}, 0.5, DType::f64),
                           leaf("heads", {s.heads, 1}, 0.3, DType::f64)};
  };
  const auto by_row = [](const Sizes& s, const Leaf& leaf) {
    return RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, 7}, 1, DType::f64), true};
  };
  return {{"score_mod_apart",
           [=](const Sizes& s, const Leaf& leaf, Score& score) {
             AppliedScoreMod pair = apart(s, leaf);
             pair.gates = gates_of(s, leaf);
             score.add_score_mod(pair);
             score.biases.push_back(by_row(s, leaf));
           }},
          // Scores have a gradient through the gates.
          {"pair_apart_with_gates_of_the_score",
           [=](const Sizes& s, const Leaf& leaf, Score& score) { score.add_score_mod(apart(s, leaf)); },
           false,
           {.window = 30, .first = 2}},
          {"score_mod_overruled", [=](const Sizes& s, const Leaf& leaf, Score& score) {
             score.add_score_mod(AppliedScoreMod{&overruled_score_mod(),
                                                 leaf("rows", {s.batch, s.heads, s.length, 1}, 0.5, DType::f64)});
             score.biases.push_back(by_row(s, leaf));
             score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length}, 1, DType::f64)});
             score.biases.push_back(Product{leaf("r", {s.batch, s.heads, s.length, 3}, 0.5, DType::f64),
                                            leaf("g", {s.batch, s.key_heads(), s.length, 3}, 1, DType::f64)});
           }}};
}

}  // namespace tally::testing
