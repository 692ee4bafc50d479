// Attention written out, every intermediate an ordinary operation: the form to read first, and the reference that any
// fused form is tested against. For one head, query i, key j <= i:
//
//   s_ij = scale q_i.k_j                         the score
//   l_ij = s_ij + what joins it (autograd/score.hpp)   the logit
//   a_ij = softmax of row i over the j it sees   the weight (or another rule: Normaliser, Encoding::weights)
//   o_i  = sum_j a_ij v_j
//
// Costs memory for several [B, H, T, T] tensors: the weights, and gates and positions where there is a scan, stay until
// backward; scores and logits are freed on the way.
#pragma once

#include "autograd/score.hpp"
#include "nn/dropout.hpp"
#include "nn/encoding.hpp"
#include "nn/pass.hpp"

namespace tally {

// l [B, H, T, T], with what a policy makes of scores but not with one that comes after biases; what it holds above the
// diagonal means nothing. Fills gates, positions and decay of the trace, if given.
Tensor composed_logits(const AttentionOperands& in, const Score& score, AttentionTrace* trace = nullptr);

// o [B, H, T, d]; `in` is what the encoding sees for weights of its own. Fills the trace, if given.
Tensor composed_attention(const AttentionOperands& operands, const Score& score, const Encoding& encoding,
                          const AttentionInput& in, const Dropout& dropout, const Pass& pass,
                          AttentionTrace* trace = nullptr);

}  // namespace tally
