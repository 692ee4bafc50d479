// One score shape, made from sizes and named tensors.
#pragma once

#include <functional>
#include <string>

#include "autograd/score.hpp"

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
  // Whether rounding decides between two derivatives somewhere: at positions next to an integer, where the table bends,
  // or where a hidden unit does.
  bool kinks = false;
  AttentionMask mask = {};
  bool all_tokens = false;  // the number of queries equals the number of keys
};

inline Gates gates_of(const Sizes& s, const Leaf& leaf) {
  return {leaf("gate_query", {s.batch, s.heads, s.length, s.width}, 1, DType::f64),
          leaf("gate_key", {s.batch, s.key_heads(), s.length, s.width}, 1, DType::f64)};
}

}  // namespace tally::testing
