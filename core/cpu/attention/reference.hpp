// Attention in scalar loops of double: the definition that the fused kernels are tested against.
#pragma once

#include "core/attention/problem.hpp"

namespace tally::cpu::reference {

// The kernels of these names in core/device/kernels.def, for f64, on one thread and without a workspace. Forward writes
// only the output, since backward computes everything again. They throw Error for an operand that they do not know.
void attention(const AttentionCall& call);
void attention_backward(const AttentionCall& call, const AttentionGradients& gradients);

}  // namespace tally::cpu::reference
