// Reference attention, which materialises every intermediate with ordinary operations. Read it first; fused attention
// is tested against it. For one head, query i, key j <= i:
//
//   s_ij = scale q_i.k_j                                      the score
//   l_ij = s_ij + score modifications and biases              the logit (autograd/score.hpp)
//   a_ij = softmax of row i over its unmasked keys j          the weight (or by SoftmaxRule, Encoding::weights)
//   o_i  = sum_j a_ij v_j
//
// Needs memory for several [B, H, T, T] tensors. The weights, and with a score modification gates and positions, are
// saved for backward; scores and logits are freed on the way.
#pragma once

#include "autograd/score.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/forward_context.hpp"
#include "nn/layers/dropout.hpp"

namespace tally {

// Whether key j is unmasked for query i, for the queries from `first` on: bool [1, length - first, length]; strictly: a
// token is masked from itself. Computed in numbers of this type, on this device.
Tensor mask_tensor(const AttentionMask& mask, std::int64_t length, DType dtype, Device device, std::int64_t first = 0,
                   bool strictly = false);

// x [.., T, T] with 0 for every masked pair.
Tensor masked_fill_zero(const Tensor& x, const Tensor& mask);
// With the lowest finite number, whose exponential is 0, for masked pairs. Not infinite: the search for the first
// non-finite number would report it.
Tensor masked_fill_min(const Tensor& x, const Tensor& mask);

// l [B, H, T, T], without score modifications that act on biased logits. Values above the diagonal are meaningless.
// Fills gates, positions and decay of the trace, if given. Adds each term's contribution to l to `joined`, if given.
Tensor composed_logits(const AttentionOperands& in, const Score& score, AttentionTrace* trace = nullptr,
                       Tensor* joined = nullptr);

// o [B, H, T, d]. in: the input of the encoding's custom weights. Fills the trace, if given.
Tensor composed_attention(const AttentionOperands& operands, const Score& score, const Encoding& encoding,
                          const AttentionInput& in, const Dropout& dropout, const ForwardContext& pass,
                          AttentionTrace* trace = nullptr);

}  // namespace tally
