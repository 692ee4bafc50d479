// Matrix products as operations compute them, without a gradient of their own.
#pragma once

#include "core/op_kinds.hpp"
#include "core/tensor.hpp"

namespace tally {

// c = alpha a b, written as `end` says, all [..., M, N], [..., M, K], [..., K, N] with the same leading axes and of one
// type and device, c row-major or transposed. Throws Error where a size is 2^31 or more.
void multiply_into(const Tensor& c, const Tensor& a, const Tensor& b, const ProductEnd& end = {});

// The sum over the rows of x [R, N], of f32 or f64, or of f32 kept in bf16: [N].
Tensor sum_of_rows(const Tensor& x);

inline Tensor transposed(const Tensor& matrix) { return matrix.transpose_view(-2, -1); }

}  // namespace tally
