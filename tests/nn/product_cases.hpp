// Tables of distances that are products of rows: tiles make them where they read them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "tests/nn/shape_case.hpp"

namespace tally::testing {

inline std::vector<ShapeCase> product_cases() {
  return {
      {"toeplitz_product",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(ToeplitzProduct{leaf("by_query", {s.batch, s.heads, s.length, 5}, 0.5, DType::f64),
                                                leaf("by_distance", {1, 1, s.length, 5}, 1, DType::f64)});
       }},
      {"toeplitz_product_long",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(ToeplitzProduct{leaf("by_query", {s.batch, s.heads, s.length, 5}, 0.5, DType::f64),
                                                leaf("by_distance", {s.batch, 1, s.length + 3, 5}, 1, DType::f64)});
       },
       false,
       {.window = 30}},
      {"toeplitz_product_short",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(ToeplitzProduct{
             leaf("by_query", {s.batch, s.heads, s.length, 5}, 0.5, DType::f64),
             leaf("by_distance", {s.batch, s.key_heads(), std::min<std::int64_t>(s.length, 40), 5}, 1, DType::f64)});
       }},
      {"toeplitz_product_capped_in_a_window",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.biases.push_back(ToeplitzProduct{
             leaf("by_query", {s.batch, s.heads, s.length, 5}, 0.5, DType::f64),
             leaf("by_distance", {1, s.heads, std::min<std::int64_t>(s.length, 9), 5}, 1, DType::f64), true});
       },
       false,
       {.window = 30, .first = 2}},
      {"toeplitz_products_and_table",
       [](const Sizes& s, const Leaf& leaf, Score& score) {
         score.add_score_mod(contextual_table(leaf("z", {s.batch, s.heads, s.length, 17}, 1, DType::f64)));
         for (const std::string_view one : {"1", "2"}) {
           score.biases.push_back(
               ToeplitzProduct{leaf(formatted("by_query{}", one), {s.batch, s.heads, s.length, 5}, 0.5, DType::f64),
                               leaf(formatted("by_distance{}", one), {1, 1, s.length, 5}, 1, DType::f64), true});
         }
       },
       true},
  };
}

}  // namespace tally::testing
