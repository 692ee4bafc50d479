// Rows of a table by index, and the adjoint: the gradient of a table row is the sum over all ids that took it.
#include <span>

#include "core/cpu/rows.hpp"
#include "core/device/kernels.hpp"
#include "core/device/workspace.hpp"

namespace tally::cpu {

namespace {

constexpr std::int64_t column_block = 128;

// The positions of each id, found by a counting sort.
class IndicesById {
 public:
  IndicesById(std::int64_t count, std::int64_t id_count, Arena arena) {
    first_ = arena.take<std::int64_t>(id_count + 2);
    order_ = arena.take<std::int64_t>(count);
    bytes_ = arena.bytes();
  }
  std::int64_t bytes() const { return bytes_; }

  void sort(const std::int32_t* ids, std::int64_t count, std::int64_t id_count) {
    // Shifted by one more entry: filling in advances each counter, and leaves the start of each id.
    std::fill_n(first_, id_count + 2, std::int64_t{0});
    for (std::int64_t n = 0; n < count; ++n) ++first_[ids[n] + 2];
    for (std::int64_t v = 2; v < id_count + 2; ++v) first_[v] += first_[v - 1];
    for (std::int64_t n = 0; n < count; ++n) order_[first_[ids[n] + 1]++] = n;
  }
  // The n with ids[n] = v, in ascending order.
  std::span<const std::int64_t> of(std::int64_t v) const { return {order_ + first_[v], order_ + first_[v + 1]}; }

 private:
  std::int64_t* first_;  // [ids + 2]
  std::int64_t* order_;
  std::int64_t bytes_;
};

}  // namespace

void embedding(View y, View table, View ids) {
  const std::int64_t width = y.shape[1], step = row_step(table);
  if (y.numel() == 0) return;
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_for_blocks(y.shape[0], rows_per_tile(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        const T* const row = table.as<T>() + ids.as<std::int32_t>()[n] * table.strides[0];
        T* const row_y = y.as<T>() + n * width;
        if (step == 1) {
          std::copy_n(row, width, row_y);
        } else {
          for (std::int64_t j = 0; j < width; ++j) row_y[j] = row[j * step];
        }
      }
    });
  });
}

std::int64_t embedding_backward_workspace(View d_table, View ids) {
  return IndicesById(ids.numel(), d_table.shape[0], Arena(nullptr)).bytes();
}

void embedding_backward(View d_table, View d_y, View ids, void* workspace) {
  const std::int64_t vocabulary = d_table.shape[0], width = d_table.shape[1], step = row_step(d_y);
  if (d_table.numel() == 0) return;
  const std::int64_t blocks = (width + column_block - 1) / column_block;
  IndicesById indices(ids.numel(), vocabulary, Arena(workspace));
  indices.sort(ids.as<std::int32_t>(), ids.numel(), vocabulary);
  // Column blocks per tile, so that a tile has the usual number of additions on average.
  const std::int64_t tile_height = rows_per_tile((1 + ids.numel() / vocabulary) * column_block);
  dispatch_floating(d_table.dtype, [&](auto type) {
    using T = decltype(type);
    const auto sum_columns = [&](std::int64_t v, std::int64_t begin, std::int64_t end) {
      double sum[column_block] = {};
      for (const std::int64_t n : indices.of(v)) {
        const T* const row = d_y.as<T>() + n * d_y.strides[0] + begin * step;
        for (std::int64_t j = 0; j < end - begin; ++j) sum[j] += static_cast<double>(row[j * step]);
      }
      T* const d_row = d_table.as<T>() + v * width;
      for (std::int64_t j = begin; j < end; ++j) d_row[j] = static_cast<T>(sum[j - begin]);
    };
    parallel_for_blocks(vocabulary * blocks, tile_height, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        const std::int64_t begin = i % blocks * column_block;
        sum_columns(i / blocks, begin, std::min(width, begin + column_block));
      }
    });
  });
}

}  // namespace tally::cpu
