// Matrix products of f32 whose smaller operand stays in a core's own caches, as in layers of a small model: what matmul
// (core/cpu/matmul.cpp) does where a BLAS spends more on its copies than they save.
#pragma once

#include <cstdint>

#include "core/kernels.hpp"
#include "core/matrix_layout.hpp"
#include "core/view.hpp"

namespace tally::cpu {

// Whether these products, `matrices` of [M, K] [K, N], are faster here: by their shape, and on processors with vectors
// of 64 bytes (measured: tests/bench/measurements.md).
bool is_small_product(std::int64_t matrices, std::int64_t m, std::int64_t n, std::int64_t k);

// As matmul of core/kernels.def, with c row-major and rows ld_c apart, and the bias [M, N] with a step of 0 along one
// of them, or absent. An element is one sum of a (alpha b) in rising k, which begins with the bias or what c holds. Of
// a long sum, as in the gradient of a weight, there are as many such parts as the shape says, added in their order.
std::int64_t matmul_small_workspace(std::int64_t matrices, std::int64_t m, std::int64_t n, std::int64_t k);
void matmul_small(const View& c, std::int64_t ld_c, const View& a, const View& b, const ProductEnd& end,
                  void* workspace);

}  // namespace tally::cpu
