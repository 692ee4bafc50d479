// The memory layout of the matrices of a view (its last two axes), for the matmuls of every device.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "core/view.hpp"

namespace tally {

// A matrix as BLAS reads it: element (i, j) at i ld + j, or transposed at i + j ld.
struct Layout {
  bool transposed;
  std::int64_t ld;
};

// The layout of the last two axes; nothing if they are neither row-major nor transposed.
inline std::optional<Layout> layout_of(const View& x) {
  const std::int64_t rows = x.shape.back(1), columns = x.shape.back(0);
  const std::int64_t row_step = x.strides[x.shape.rank - 2], column_step = x.strides[x.shape.rank - 1];
  if ((column_step == 1 || columns == 1) && (row_step >= columns || rows == 1)) {
    return Layout{false, rows == 1 ? columns : row_step};
  }
  if ((row_step == 1 || rows == 1) && (column_step >= rows || columns == 1)) {
    return Layout{true, columns == 1 ? rows : column_step};
  }
  return std::nullopt;
}

// With the last two axes exchanged.
inline View transposed(View x) {
  std::swap(x.shape[x.shape.rank - 1], x.shape[x.shape.rank - 2]);
  std::swap(x.strides[x.shape.rank - 1], x.strides[x.shape.rank - 2]);
  return x;
}

// The view without its matrix axes.
inline View batch_of(View x) {
  x.shape.rank -= 2;
  return x;
}

}  // namespace tally
