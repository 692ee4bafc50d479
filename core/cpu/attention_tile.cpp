// Transpositions of attention's tiles, and sums of them.
#include "core/cpu/attention_tile.hpp"

#include <cstddef>
#include <utility>

#include "core/cpu/instruction_sets.hpp"
#include "core/vector.hpp"

namespace tally::cpu {

namespace {

// Rows whose elements lie next to each other.
template <class T>
TALLY_CLONES void pack_dense_rows(T* target, std::int64_t ld, const T* source, std::int64_t step, std::int64_t rows,
                                  std::int64_t width, T factor) {
  for (std::int64_t i = 0; i < rows; ++i) {
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) target[i * ld + c] = factor * source[i * step + c];
  }
}

#ifdef TALLY_FOR
// Of 2 x 2 blocks of `size` lanes: rows a and b with their parts off the diagonal exchanged, the upper one or the
// lower.
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

// y[c][r] = factor x[r][c] of whole squares of vector_lanes<T>.
template <class T>
TALLY_FOR("v4")
void transpose_squares(T* y, std::int64_t ld_y, const T* x, std::int64_t ld_x, std::int64_t rows, std::int64_t columns,
                       T factor) {
  using V = Vector<T, 64>;
  constexpr std::int64_t side = vector_lanes<T>;
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
#endif

// y[c][r] = factor x[r][c], squares of whole vectors at once.
template <class T>
void transpose(T* y, std::int64_t ld_y, const T* x, std::int64_t ld_x, std::int64_t rows, std::int64_t columns,
               T factor) {
  constexpr std::int64_t side = vector_lanes<T>;
  std::int64_t whole_rows = 0, whole_columns = 0;
#ifdef TALLY_FOR
  if (register_bytes() == 64) {
    whole_rows = rows / side * side;
    whole_columns = columns / side * side;
    transpose_squares(y, ld_y, x, ld_x, whole_rows, whole_columns, factor);
  }
#endif
  constexpr std::int64_t block = side;  // one cache line of y for each column
  for (std::int64_t first = 0; first < rows; first += block) {
    const std::int64_t end = std::min(first + block, rows);
    for (std::int64_t c = first < whole_rows ? whole_columns : 0; c < columns; ++c) {
      for (std::int64_t r = first; r < end; ++r) y[c * ld_y + r] = factor * x[r * ld_x + c];
    }
  }
}

template <class T>
TALLY_CLONES void add_keys_in_lanes(T* sum, const T* x, std::int64_t keys, std::int64_t lanes) {
  for (std::int64_t j = 0; j < keys; ++j) {
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) sum[i] += x[j * tile_rows + i];
  }
}

}  // namespace

template <class T>
void pack_rows(T* target, std::int64_t ld, const Matrix<T>& x, std::int64_t first, std::int64_t rows,
               std::int64_t width, T factor, std::int64_t all_rows) {
  if (x.column_step == 1 && rows > 0) {
    pack_dense_rows(target, ld, &x.at(first, 0), x.row_step, rows, width, factor);
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    T* const row = target + i * ld;
    for (std::int64_t c = 0; x.column_step != 1 && c < width; ++c) row[c] = factor * x.at(first + i, c);
    std::fill(row + width, row + ld, T{0});
  }
  std::fill(target + rows * ld, target + all_rows * ld, T{0});
}

template <class T>
void transpose_to_lanes(T* target, const T* source, std::int64_t ld, std::int64_t width) {
  transpose(target, tile_rows, source, ld, tile_rows, width, T{1});
}

template <class T>
void transpose_to_rows(T* target, std::int64_t ld, const T* source, std::int64_t width) {
  transpose(target, ld, source, tile_rows, width, tile_rows, T{1});
}

template <class T>
void unpack_lanes(const Matrix<T>& x, std::int64_t first, std::int64_t rows, std::int64_t width, const T* source,
                  T factor) {
  if (x.column_step == 1) {
    if (rows > 0) transpose(&x.at(first, 0), x.row_step, source, tile_rows, width, rows, factor);
    return;
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t c = 0; c < width; ++c) x.at(first + i, c) = factor * source[c * tile_rows + i];
  }
}

template <class T>
void add_keys(T* sum, const T* x, std::int64_t keys, std::int64_t lanes) {
  add_keys_in_lanes(sum, x, keys, lanes);
}

#define TALLY_INSTANTIATE(T)                                                                               \
  template void pack_rows(T*, std::int64_t, const Matrix<T>&, std::int64_t, std::int64_t, std::int64_t, T, \
                          std::int64_t);                                                                   \
  template void transpose_to_lanes(T*, const T*, std::int64_t, std::int64_t);                              \
  template void transpose_to_rows(T*, std::int64_t, const T*, std::int64_t);                               \
  template void unpack_lanes(const Matrix<T>&, std::int64_t, std::int64_t, std::int64_t, const T*, T);     \
  template void add_keys(T*, const T*, std::int64_t, std::int64_t);
TALLY_INSTANTIATE(float)
TALLY_INSTANTIATE(double)
#undef TALLY_INSTANTIATE

}  // namespace tally::cpu
