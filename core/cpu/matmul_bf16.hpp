// Matrix products of f32 whose operands are rounded to bf16: what matmul (core/cpu/matmul.cpp) does where
// product_precision() is bf16.
#pragma once

#include "core/cpu/bf16_tiles.hpp"
#include "core/matrix_layout.hpp"
#include "core/view.hpp"

namespace tally::cpu {

// As matmul of core/kernels.def, with c row-major and rows ld_c apart, and the bias [M, N] with a step of 0 along one
// of them, or absent. The sums have the order of the tiles (core/cpu/bf16_tiles.hpp) in each part of a long sum, of
// which there are as many as the shape says, and the parts are added in their order. A c of bf16, of one matrix, has
// whole sums.
std::int64_t matmul_bf16_workspace(const View& c, std::int64_t m, std::int64_t n, std::int64_t k);
void matmul_bf16(const View& c, std::int64_t ld_c, const View& a, const View& b, const ProductEnd& end, void* workspace,
                 const Bf16Tiles& tiles = bf16_tiles());

}  // namespace tally::cpu
