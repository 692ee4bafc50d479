// Walking several views of one shape together. Axes are merged as far as all views allow, so that dense tensors become
// one long row; rows are then cut into tiles by shape alone and shared out to the threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/cpu/parallel.hpp"
#include "core/math.hpp"
#include "core/view.hpp"

namespace tally::cpu {

// Elements that one tile covers: large beside the cost of handing it out, small enough for the caches.
inline constexpr std::int64_t tile_elements = 16384;

// Rows of `width` elements that make up one tile.
constexpr std::int64_t rows_per_tile(std::int64_t width) {
  return std::max<std::int64_t>(1, tile_elements / std::max<std::int64_t>(1, width));
}

// N views as nested loops, the last axis innermost; steps count elements.
template <std::size_t N>
struct Loop {
  int rank = 0;
  std::array<std::int64_t, max_rank> size{};
  std::array<std::array<std::int64_t, N>, max_rank> step{};

  std::int64_t inner_size() const { return size[static_cast<std::size_t>(rank - 1)]; }
  const std::array<std::int64_t, N>& inner_step() const { return step[static_cast<std::size_t>(rank - 1)]; }
  // Rows are all axes but the innermost, row-major; the offset of each view at the begin of a row.
  std::int64_t rows() const {
    std::int64_t n = 1;
    for (std::size_t axis = 0; axis + 1 < static_cast<std::size_t>(rank); ++axis) n *= size[axis];
    return n;
  }
  std::array<std::int64_t, N> row_offsets(std::int64_t row) const { return offsets(row, rank - 1); }
  // The same for single elements, all axes counted.
  std::array<std::int64_t, N> element_offsets(std::int64_t element) const { return offsets(element, rank); }

 private:
  std::array<std::int64_t, N> offsets(std::int64_t place, int axes) const {
    std::array<std::int64_t, N> offset{};
    for (auto axis = static_cast<std::size_t>(axes); axis-- > 0 && place > 0;) {
      const std::int64_t index = axis == 0 ? place : place % size[axis];
      place /= size[axis];
      for (std::size_t n = 0; n < N; ++n) offset[n] += index * step[axis][n];
    }
    return offset;
  }
};

// The loop over `shape`. Views of lower rank are aligned at the last axis; axes of size 1 are repeated. Axes a, b next
// to each other become one where a step along a is b's size times a step along b in every view. The rank is at least 1.
template <class... Views>
Loop<sizeof...(Views)> make_loop(const Shape& shape, const Views&... views) {
  constexpr std::size_t n_views = sizeof...(Views);
  Loop<n_views> loop;
  for (int axis = 0; axis < shape.rank; ++axis) {
    if (shape[axis] == 1) continue;
    const auto step_of = [&](const View& view) {
      const int own = axis - (shape.rank - view.shape.rank);
      return own < 0 || view.shape[own] == 1 ? std::int64_t{0} : view.strides[own];
    };
    const std::array<std::int64_t, n_views> step{step_of(views)...};
    bool merges = loop.rank > 0;
    for (std::size_t n = 0; merges && n < n_views; ++n) {
      merges = loop.inner_step()[n] == step[n] * shape[axis];
    }
    if (!merges) ++loop.rank;
    const auto last = static_cast<std::size_t>(loop.rank - 1);
    loop.size[last] = merges ? loop.size[last] * shape[axis] : shape[axis];
    loop.step[last] = step;
  }
  if (loop.rank == 0) {
    loop.rank = 1;
    loop.size[0] = 1;
    loop.step[0].fill(1);
  }
  return loop;
}

// Calls f(offsets, n) for pieces of rows, n <= tile_elements elements each, on all threads.
template <std::size_t N, class F>
void for_each_piece(const Loop<N>& loop, F&& f) {
  const std::int64_t width = loop.inner_size();
  const std::int64_t rows = loop.rows();
  if (width == 0 || rows == 0) return;
  const std::int64_t pieces = (width + tile_elements - 1) / tile_elements;
  parallel_for_blocks(rows * pieces, rows_per_tile(width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t piece = begin; piece < end; ++piece) {
      std::array<std::int64_t, N> offsets = loop.row_offsets(piece / pieces);
      const std::int64_t first = piece % pieces * tile_elements;
      for (std::size_t n = 0; n < N; ++n) offsets[n] += first * loop.inner_step()[n];
      f(offsets, std::min(tile_elements, width - first));
    }
  });
}

// Elements of a row that stand `step` apart, handed out next to each other: in place for step 1, else by a small copy.
template <class T>
class GatheredRow {
 public:
  static constexpr std::int64_t capacity = 512;

  GatheredRow(const T* row, std::int64_t step) : row_(row), step_(step) {
    if (step == 0) std::fill_n(buffer_, capacity, *row);
  }
  // Elements begin .. begin + n - 1, n <= capacity; valid until the next call.
  const T* at(std::int64_t begin, std::int64_t n) {
    if (step_ == 1) return row_ + begin;
    if (step_ == 0) return buffer_;
    for (std::int64_t i = 0; i < n; ++i) buffer_[i] = row_[(begin + i) * step_];
    return buffer_;
  }

 private:
  const T* row_;
  std::int64_t step_;
  T buffer_[capacity];
};

}  // namespace tally::cpu
