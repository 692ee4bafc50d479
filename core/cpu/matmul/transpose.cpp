// Squares as wide as a register, of up to 16 x 16 numbers, are transposed in registers.
#include "core/cpu/matmul/transpose.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/cpu/instruction_sets.hpp"
#include "core/cpu/matmul/microkernel_f32.hpp"
#include "core/math/vector.hpp"

namespace tally::cpu {

namespace {

#ifdef TALLY_FOR
// Row a, or b if `lower`, after the off-diagonal blocks of 2 x 2 blocks of `size` lanes have been exchanged.
template <std::size_t size, bool lower, class V, std::size_t... lane>
TALLY_INLINE V exchanged(const V& a, const V& b, std::index_sequence<lane...>) {
  constexpr std::size_t all = sizeof...(lane);
  return __builtin_shufflevector(
      a, b, static_cast<int>((lane & size) != 0 ? all + lane - (lower ? 0 : size) : lane + (lower ? size : 0))...);
}
// Rows become columns, block by block of growing size.
template <class V, std::size_t n, std::size_t size = 1>
TALLY_INLINE void transpose_square(V (&x)[n]) {
  if constexpr (size < n) {
#pragma GCC unroll 16
    for (std::size_t i = 0; i < n; ++i) {
      if ((i & size) != 0) continue;
      const V a = x[i], b = x[i + size];
      x[i] = exchanged<size, false>(a, b, std::make_index_sequence<n>{});
      x[i + size] = exchanged<size, true>(a, b, std::make_index_sequence<n>{});
    }
    transpose_square<V, n, 2 * size>(x);
  }
}

// y[c][r] = factor x[r][c] of whole squares.
template <int bytes, class T>
TALLY_INLINE void transpose_squares(T* y, std::int64_t ld_y, const T* x, std::int64_t ld_x, std::int64_t rows,
                                    std::int64_t columns, T factor) {
  using V = Vector<T, bytes>;
  constexpr auto side = static_cast<std::int64_t>(bytes / sizeof(T));
  for (std::int64_t r = 0; r < rows; r += side) {
    for (std::int64_t c = 0; c < columns; c += side) {
      V square[static_cast<std::size_t>(side)];
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < side; ++i) square[i] = load_vector<V>(x + (r + i) * ld_x + c);
      transpose_square(square);
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < side; ++i) store_vector<V>(y + (c + i) * ld_y + r, factor * square[i]);
    }
  }
}
template <class T>
TALLY_FOR("v4")
void transpose_squares_64(T* y, std::int64_t ld_y, const T* x, std::int64_t ld_x, std::int64_t rows,
                          std::int64_t columns, T factor) {
  transpose_squares<64>(y, ld_y, x, ld_x, rows, columns, factor);
}
template <class T>
TALLY_FOR("v3")
void transpose_squares_32(T* y, std::int64_t ld_y, const T* x, std::int64_t ld_x, std::int64_t rows,
                          std::int64_t columns, T factor) {
  transpose_squares<32>(y, ld_y, x, ld_x, rows, columns, factor);
}
#endif

}  // namespace

template <class T>
void copy_transposed(T* y, std::int64_t ld_y, const T* x, std::int64_t ld_x, std::int64_t rows, std::int64_t columns,
                     T factor) {
  std::int64_t whole_rows = 0, whole_columns = 0;
#ifdef TALLY_FOR
  if (register_bytes() > 16) {
    const auto side = static_cast<std::int64_t>(static_cast<std::size_t>(register_bytes()) / sizeof(T));
    whole_rows = rows / side * side;
    whole_columns = columns / side * side;
    const auto squares = register_bytes() == 64 ? transpose_squares_64<T> : transpose_squares_32<T>;
    squares(y, ld_y, x, ld_x, whole_rows, whole_columns, factor);
  }
#endif
  constexpr std::int64_t block = vector_lanes<T>;  // one cache line of y for each column
  for (std::int64_t first = 0; first < rows; first += block) {
    const std::int64_t end = std::min(first + block, rows);
    for (std::int64_t c = first < whole_rows - block ? whole_columns : 0; c < columns; ++c) {
      const std::int64_t begin = c < whole_columns ? std::max(first, whole_rows) : first;
      for (std::int64_t r = begin; r < end; ++r) y[c * ld_y + r] = factor * x[r * ld_x + c];
    }
  }
}

template void copy_transposed(float*, std::int64_t, const float*, std::int64_t, std::int64_t, std::int64_t, float);
template void copy_transposed(double*, std::int64_t, const double*, std::int64_t, std::int64_t, std::int64_t, double);

}  // namespace tally::cpu
