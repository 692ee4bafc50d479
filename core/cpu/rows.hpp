// Kernels that work on whole rows (the last axis), with the causal triangle: row i of a square [T, T] uses only the
// columns 0..i, and the result is 0 in the others.
#pragma once

#include "core/cpu/lanes.hpp"
#include "core/cpu/strided.hpp"

namespace tally::cpu {

// Written as bits: g++ does not vectorise stores of bf16 objects.
TALLY_INLINE void write(float* y, float value) { *y = value; }
TALLY_INLINE void write(double* y, double value) { *y = value; }
TALLY_INLINE void write(Bfloat16* y, float value) { y->bits = detail::bfloat16_bits(value); }

// One row of a tensor with rows of some width.
struct Row {
  std::int64_t index;   // flat, row-major
  std::int64_t length;  // columns that are used
  // Columns that may be read and written so that vector loops need no remainder: length rounded up within the width.
  std::int64_t padded;
};

inline Row row_at(std::int64_t index, std::int64_t width, bool causal) {
  const std::int64_t length = causal ? index % width + 1 : width;
  return {index, length, std::min(width, (length + lane_count - 1) / lane_count * lane_count)};
}

// The view of the first elements of all rows.
inline View leading_axes(const View& x) {
  View leading = x;
  --leading.shape.rank;
  return leading;
}

// Stride of the last axis; 1 if there is no second element.
inline std::int64_t row_step(const View& x) { return x.shape.back() <= 1 ? 1 : x.strides[x.shape.rank - 1]; }

// The index of the largest element of a row: the first of equal elements, and the first NaN if there is one.
template <class T>
std::int64_t index_of_largest(const T* row, std::int64_t width, std::int64_t step = 1) {
  std::int64_t best = 0;
  for (std::int64_t j = 1; j < width; ++j) {
    const T value = row[j * step], largest = row[best * step];
    if (value > largest || (value != value && largest == largest)) best = j;
  }
  return best;
}

// Calls f(y_row, x_row, row) for every row of dense y [..., N] and x of the same shape and any strides, on all threads.
// f writes the used columns; the others become 0 afterwards. x_row is contiguous, either in place or copied into y_row,
// so f reads element j before it writes element j.
template <class T, class F>
void for_each_row(const View& y, const View& x, bool causal, F&& f) {
  if (y.numel() == 0) return;
  const std::int64_t width = y.shape.back(), rows = y.numel() / width;
  const auto loop = make_loop(leading_axes(y).shape, leading_axes(x));
  const std::int64_t step = row_step(x);
  parallel_for_blocks(rows, rows_per_tile(width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t index = begin; index < end; ++index) {
      const Row row = row_at(index, width, causal);
      T* const row_y = y.as<T>() + index * width;
      const T* row_x = x.as<T>() + loop.element_offsets(index)[0];
      if (step != 1) {
        for (std::int64_t j = 0; j < row.padded; ++j) row_y[j] = row_x[j * step];
        row_x = row_y;
      }
      f(row_y, row_x, row);
      std::fill(row_y + row.length, row_y + width, T{});
    }
  });
}

}  // namespace tally::cpu
