// The epilogue of a matmul (core/device/op_kinds.hpp), applied to each tile of sums s while it is in a core's own
// cache:
//   r = alpha s + bias + residual,  c = r or op(r) or r op'(argument)
#pragma once

#include <cstdint>

#include "core/device/op_kinds.hpp"

namespace tally::cpu {

// Sums in T, and c in T or bf16. Pointers are to the first element of a tile, rows of c and the argument are ld_c
// apart.
template <class T>
struct TileEpilogue {
  T* c = nullptr;
  Bfloat16* c_bf16 = nullptr;  // instead of c
  std::int64_t ld_c = 0;
  T alpha = 1;
  const T* bias = nullptr;  // element (i, j) at i bias_row + j bias_column
  std::int64_t bias_row = 0, bias_column = 0;
  const T* residual = nullptr;  // may be c
  std::int64_t ld_residual = 0;
  Epilogue::Activation activation = Epilogue::Activation::none;
  UnaryOp op = UnaryOp::gelu;
  void* argument = nullptr;  // in the type of c
  T* column_sums = nullptr;  // of the block's rows so far, to which the tile's are added

  // c: row-major matrices with rows ld_c apart; the bias is [M, N].
  TileEpilogue(const View& to, std::int64_t ld, const Epilogue& epilogue);
  // From element (i, j) on, of the matrix of c that begins `offset` elements later.
  TileEpilogue at(std::int64_t offset, std::int64_t i, std::int64_t j) const;

  bool is_identity() const {
    return c != nullptr && alpha == 1 && bias == nullptr && residual == nullptr &&
           activation == Epilogue::Activation::none;
  }
  // Loads a tile that will be stored soon into the caches.
  void prefetch(std::int64_t rows, std::int64_t columns) const;
  // s may be c; null: zeros.
  void store(const T* s, std::int64_t ld_s, std::int64_t rows, std::int64_t columns) const;
};

}  // namespace tally::cpu
