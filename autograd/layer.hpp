// The layers of a block, several operations in one.
#pragma once

#include "core/op_kinds.hpp"
#include "core/tensor.hpp"

namespace tally {

// weight [out, in], bias [out] or undefined.
struct Layer {
  const Tensor &weight, &bias;
};

// y = down(op(up(x))) (+ onto), op one of relu, gelu, gelu_tanh and silu; shapes and errors as of linear(), whose
// `onto` this is. Where products round to bf16 (core/precision.md), so is what lies between the two layers: up's
// result, of which op and its derivative are taken, op's result, and the gradient of up's result. The CPU's products
// write all of these as they are computed, whatever their type.
Tensor mlp(UnaryOp op, Tensor x, const Layer& up, const Layer& down, Tensor onto = {});

}  // namespace tally
