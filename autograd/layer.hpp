// Layers of a block: several operations fused into one.
#pragma once

#include "core/device/op_kinds.hpp"
#include "core/tensor.hpp"

namespace tally {

// weight [out, in], bias [out] or undefined.
struct Layer {
  const Tensor &weight, &bias;
};

// y = down(op(up(x))) (+ onto), op one of relu, gelu, gelu_tanh and silu; shapes, errors and `onto` as of linear(). If
// matmuls round to bf16 (core/precision.md), the tensors between the two layers are bf16 too. These are up's result
// (the argument of op and its derivative), op's result, and the gradient of up's result. The CPU's matmuls write all of
// these in their epilogue, in any type.
Tensor mlp(UnaryOp op, Tensor x, const Layer& up, const Layer& down, Tensor onto = {});

}  // namespace tally
