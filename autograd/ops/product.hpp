// Matmuls that are not recorded, for use within operations.
#pragma once

#include "core/device/op_kinds.hpp"
#include "core/tensor.hpp"

namespace tally {

// c = alpha a b with the epilogue `end`. c [..., M, N], a [..., M, K] and b [..., K, N] have the same leading axes,
// type and device; c is row-major or transposed. A second kernel writes end.row_sums if the matmul cannot. Throws Error
// if a size is 2^31 or more.
void multiply_into(const Tensor& c, const Tensor& a, const Tensor& b, Epilogue end = {});

// The sum [N] over the rows of x [R, N]; x is f32, f64 or bf16.
Tensor sum_of_rows(const Tensor& x);

inline Tensor transposed(const Tensor& matrix) { return matrix.detached_transpose(-2, -1); }

}  // namespace tally
