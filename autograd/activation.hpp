// What lies between the products of a layer, written for the next of them alone.
#pragma once

#include "core/kernels.hpp"
#include "core/tensor.hpp"

namespace tally {

// op(x weight^T + bias), op one of relu, gelu, gelu_tanh and silu; shapes and errors as of linear(), bias may be
// undefined. Where products round to bf16 (core/precision.md), so are x weight^T + bias, of which op and its derivative
// are taken, the gradients of it and of the result, and the result, which is a tensor of bf16: linear() alone reads it.
Tensor activated_linear(UnaryOp op, Tensor x, const Tensor& weight, const Tensor& bias);

}  // namespace tally
