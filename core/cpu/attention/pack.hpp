// Copies between matrices and tiles, and sums of tiles. Only for core/cpu/attention/attention.cpp.
#pragma once

#include <algorithm>
#include <bit>

#include "core/cpu/attention/tile.hpp"
#include "core/cpu/instruction_sets.hpp"
#include "core/cpu/matmul/transpose.hpp"
#include "core/math/bfloat16.hpp"

namespace tally::cpu {

// Rows of contiguous elements.
template <class T, class X>
TALLY_CLONES void pack_dense_rows(T* target, std::int64_t ld, const X* source, std::int64_t step, std::int64_t rows,
                                  std::int64_t width, T factor) {
  for (std::int64_t i = 0; i < rows; ++i) {
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) target[i * ld + c] = factor * static_cast<T>(source[i * step + c]);
  }
}

template <class T, class X>
void pack_rows_of(T* target, std::int64_t ld, const Matrix<X>& x, std::int64_t first, std::int64_t rows,
                  std::int64_t width, T factor, std::int64_t all_rows) {
  if (x.column_step == 1 && rows > 0) {
    pack_dense_rows(target, ld, &x.at(first, 0), x.row_step, rows, width, factor);
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    T* const row = target + i * ld;
    for (std::int64_t c = 0; x.column_step != 1 && c < width; ++c) {
      row[c] = factor * static_cast<T>(x.at(first + i, c));
    }
    std::fill(row + width, row + ld, T{0});
  }
  std::fill(target + rows * ld, target + all_rows * ld, T{0});
}

// target[i * ld + c] = factor x(first + i, c), rows x width, of matrix (batch, head) of x; columns from width to ld and
// rows from `rows` to all_rows become 0. x may be bf16.
template <class T>
void pack_rows(T* target, std::int64_t ld, const View& x, std::int64_t batch, std::int64_t head, std::int64_t first,
               std::int64_t rows, std::int64_t width, T factor, std::int64_t all_rows) {
  dispatch_mixed(dtype_of<T>, x.dtype, [&](auto type, auto mixed) {
    if constexpr (std::is_same_v<decltype(type), T>) {
      pack_rows_of(target, ld, Matrix<decltype(mixed)>(x, batch, head), first, rows, width, factor, all_rows);
    }
  });
}

// target[c * tile_rows + i] = x(rows.first + i, first + c) for `columns` columns of matrix (batch, head) of x; padding
// lanes become 0.
template <class T>
void pack_lanes(T* target, const View& x, const RowTile& rows, std::int64_t first, std::int64_t columns) {
  if (rows.rows < tile_rows) std::fill_n(target, columns * tile_rows, T{0});
  const Matrix<T> source(x, rows.batch, rows.head);
  if (source.column_step == 1) {
    return copy_transposed(target, tile_rows, &source.at(rows.first, first), source.row_step, rows.rows, columns, T{1});
  }
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    for (std::int64_t c = 0; c < columns; ++c) target[c * tile_rows + i] = source.at(rows.first + i, first + c);
  }
}

// y = x, rounded to bf16; rows are step_y and step_x apart. Writes bits, because g++ does not vectorise assignments of
// whole objects.
template <class T>
TALLY_CLONES void write_rounded_rows(Bfloat16* y, std::int64_t step_y, const T* x, std::int64_t step_x,
                                     std::int64_t rows, std::int64_t width) {
  for (std::int64_t i = 0; i < rows; ++i) {
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) y[i * step_y + c].bits = detail::bfloat16_bits(x[i * step_x + c]);
  }
}

// x(rows.first + i, first + c) = factor source[c * tile_rows + i]. If x is bf16, its columns are contiguous, and
// `rounded` has scratch for [tile_rows, columns].
template <class T>
void unpack_lanes(const View& x, const RowTile& rows, std::int64_t columns, const T* source, T factor,
                  T* rounded = nullptr, std::int64_t first = 0) {
  if (rows.rows == 0) return;
  if (x.dtype == DType::bf16) {
    copy_transposed(rounded, columns, source, tile_rows, columns, tile_rows, factor);
    const Matrix<Bfloat16> y(x, rows.batch, rows.head);
    return write_rounded_rows(&y.at(rows.first, first), y.row_step, rounded, columns, rows.rows, columns);
  }
  const Matrix<T> y(x, rows.batch, rows.head);
  if (y.column_step == 1) {
    return copy_transposed(&y.at(rows.first, first), y.row_step, source, tile_rows, columns, rows.rows, factor);
  }
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    for (std::int64_t c = 0; c < columns; ++c) y.at(rows.first + i, first + c) = factor * source[c * tile_rows + i];
  }
}

// y = x rounded to bf16, stored as T.
template <class T>
TALLY_CLONES void round_to_bf16(T* y, const T* x, std::int64_t count) {
#pragma omp simd
  for (std::int64_t n = 0; n < count; ++n) {
    y[n] = static_cast<T>(std::bit_cast<float>(std::uint32_t{detail::bfloat16_bits(x[n])} << 16));
  }
}

// tile *= factor
template <class T>
TALLY_CLONES void scale_tile(T* tile, T factor, std::int64_t keys, std::int64_t lanes) {
  for (std::int64_t j = 0; j < keys; ++j) {
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) tile[j * tile_rows + i] *= factor;
  }
}

// sum += factor x
template <class T>
TALLY_CLONES void add_tile(T* sum, const T* x, T factor, std::int64_t keys, std::int64_t lanes) {
  for (std::int64_t j = 0; j < keys; ++j) {
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) sum[j * tile_rows + i] += factor * x[j * tile_rows + i];
  }
}

// sum[i] = sum over keys j of x[j * tile_rows + i].
template <class T>
TALLY_CLONES void add_keys(T* sum, const T* x, std::int64_t keys, std::int64_t lanes) {
  for (std::int64_t j = 0; j < keys; ++j) {
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) sum[i] += x[j * tile_rows + i];
  }
}

}  // namespace tally::cpu
