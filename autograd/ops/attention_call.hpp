// A call of fused attention with tensors for operands. Only for autograd/ops/attention.cpp and attention_parts.cpp.
#pragma once

#include <string_view>
#include <vector>

#include "autograd/ops.hpp"
#include "autograd/score.hpp"

namespace tally::attention_call {

inline constexpr std::string_view operation_name = "attention";

// A call's tensors; undefined: absent. All of them, in the order of for_each_operand, are inputs of the graph's node.
using Problem = AttentionProblem<Tensor>;

inline std::vector<Tensor> inputs_of(const Problem& problem) {
  std::vector<Tensor> inputs;
  for_each_operand([&](const auto&, const Tensor& x) { inputs.push_back(x); }, problem);
  return inputs;
}

// Runs the kernel and records it: o [B, H, T, e], whose precision is the second argument.
Tensor attend(const Problem& problem, OutputPrecision precision);
// The same with a MovedProduct (autograd/ops/attention_parts.cpp). `at_once`: approximate number of products of queries
// and keys in memory at a time.
Tensor attend_in_parts(const Problem& problem, std::int64_t at_once);

// [B, H, T, e] whose heads are interleaved by token in memory, so that merging them is a view.
Tensor empty_by_token(const Shape& shape, DType dtype, Device device);

}  // namespace tally::attention_call
