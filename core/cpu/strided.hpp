// Walking several views of one shape together (core/math/loop.hpp), or several tensors one after the other: rows are
// cut into tiles that depend only on the shape, and distributed over the threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/cpu/parallel.hpp"
#include "core/math/loop.hpp"
#include "core/math/math.hpp"
#include "core/view.hpp"

namespace tally::cpu {

// Elements of one tile: enough work compared with the cost of scheduling it, and small enough for the caches.
inline constexpr std::int64_t tile_elements = 16384;

// Rows of `width` elements that make up one tile.
constexpr std::int64_t rows_per_tile(std::int64_t width) {
  return std::max<std::int64_t>(1, tile_elements / std::max<std::int64_t>(1, width));
}

// Calls f(offsets, n) for chunks of rows, n <= tile_elements elements each, on all threads.
template <std::size_t N, class F>
void for_each_chunk(const Loop<N>& loop, F&& f) {
  const std::int64_t width = loop.inner_size();
  const std::int64_t rows = loop.rows();
  if (width == 0 || rows == 0) return;
  const std::int64_t chunks = (width + tile_elements - 1) / tile_elements;
  parallel_for_blocks(rows * chunks, rows_per_tile(width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      std::array<std::int64_t, N> offsets = loop.row_offsets(chunk / chunks);
      const std::int64_t first = chunk % chunks * tile_elements;
      for (std::size_t n = 0; n < N; ++n) offsets[n] += first * loop.inner_step()[n];
      f(offsets, std::min(tile_elements, width - first));
    }
  });
}

// Calls f(tensor, tile, begin, end) for tiles of `block` elements of dense tensors, all in one parallel region; tiles
// are numbered across tensors.
template <class F>
void for_each_tile(Views tensors, std::int64_t block, F&& f) {
  const auto tiles_of = [&](const View& x) { return (x.numel() + block - 1) / block; };
  std::int64_t tiles = 0;
  for (const View& x : tensors) tiles += tiles_of(x);
  parallel_for(tiles, [&](std::int64_t tile) {
    std::int64_t own = tile;
    std::size_t tensor = 0;
    for (; own >= tiles_of(tensors[tensor]); ++tensor) own -= tiles_of(tensors[tensor]);
    f(tensor, tile, own * block, std::min(tensors[tensor].numel(), (own + 1) * block));
  });
}

// Elements of a row with stride `step`, made contiguous: in place for step 1, otherwise by a small copy.
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
