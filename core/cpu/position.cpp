// Table look-ups by position.
//
// read_distance: y[i, j] = x[i, i-j] for j <= i, else 0 (relative encodings, toeplitz biases). Its adjoint sums d_y
// over all entries that read one element, along diagonals if the rows share one row of x.
//
// interpolate (CoPE, arXiv 2405.18719, eq. 5): c = min(p, P), f = floor(c), w = c - f,
//   y = (1-w) table[f] + w table[min(f+1, P)];  d_table[f] += (1-w) d_y,  d_table[min(f+1, P)] += w d_y,
// d_p = d_y (table[min(f+1, P)] - table[f]), which is 0 for p >= P without a special case.
#include <omp.h>
#include "core/attention/pair_functions.hpp"

#include "core/cpu/lanes.hpp"
#include "core/cpu/rows.hpp"
#include "core/device/kernels.hpp"

namespace tally::cpu {

namespace {

constexpr std::int64_t distance_block = 128;

template <class T>
TALLY_CLONES void read_distance_row(T* y, const T* x, std::int64_t step, std::int64_t row, std::int64_t width,
                                    bool cap) {
  const std::int64_t far = std::max<std::int64_t>(0, row - width + 1);  // columns at a distance >= width
  std::fill_n(y, far, cap ? x[(width - 1) * step] : T{0});
  for (std::int64_t j = far; j <= row; ++j) y[j] = x[(row - j) * step];
}

// The sum of d_y over the columns of row `row` at a distance >= width.
template <class T>
TALLY_CLONES double sum_far(const T* d_y, std::int64_t step, std::int64_t row, std::int64_t width) {
  return lane_sum(row - width + 1, [&](std::int64_t j) TALLY_INLINED { return d_y[j * step]; });
}

template <class T>
TALLY_CLONES void read_distance_backward_row(T* d_x, const T* d_y, std::int64_t step, std::int64_t row,
                                             std::int64_t width) {
  const std::int64_t count = std::min(width, row + 1);
  for (std::int64_t n = 0; n < count; ++n) d_x[n] = d_y[(row - n) * step];
  std::fill(d_x + count, d_x + width, T{0});
}

// sum[n - begin] += d_y[row - n] for the distances n = begin..end-1 that row `row` has.
template <class T>
TALLY_CLONES void add_distances(double* sum, const T* d_y, std::int64_t step, std::int64_t row, std::int64_t begin,
                                std::int64_t end) {
  const std::int64_t count = std::min(end, row + 1) - begin;
  for (std::int64_t n = 0; n < count; ++n) sum[n] += static_cast<double>(d_y[(row - begin - n) * step]);
}

// One row of d_x for each row of d_y.
template <class T>
void read_distance_backward_own(const View& d_x, const View& d_y, bool cap) {
  const std::int64_t length = d_y.shape.back(), width = d_x.shape.back(), step = row_step(d_y);
  const auto loop = make_loop(leading_axes(d_y).shape, leading_axes(d_y));
  parallel_for_blocks(d_x.numel() / width, rows_per_tile(width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t index = begin; index < end; ++index) {
      const T* const row_d_y = d_y.as<T>() + loop.element_offsets(index)[0];
      T* const row_d_x = d_x.as<T>() + index * width;
      const std::int64_t row = index % length;
      read_distance_backward_row(row_d_x, row_d_y, step, row, width);
      if (cap && row >= width) row_d_x[width - 1] = static_cast<T>(sum_far(row_d_y, step, row, width - 1));
    }
  });
}

// One row of d_x for all rows of a square of d_y: a tile is a few neighbouring distances over all rows.
template <class T>
void read_distance_backward_shared(const View& d_x, const View& d_y, bool cap) {
  const std::int64_t length = d_y.shape.back(), width = d_x.shape.back(), step = row_step(d_y);
  const std::int64_t blocks = (width + distance_block - 1) / distance_block;
  const auto loop = make_loop(leading_axes(d_y).shape, leading_axes(d_y));
  parallel_for(d_x.numel() / width * blocks, [&](std::int64_t tile) {
    const std::int64_t square = tile / blocks;
    const std::int64_t begin = tile % blocks * distance_block, end = std::min(width, begin + distance_block);
    double sum[distance_block] = {};
    for (std::int64_t row = 0; row < length; ++row) {
      const T* const row_d_y = d_y.as<T>() + loop.element_offsets(square * length + row)[0];
      add_distances(sum, row_d_y, step, row, begin, end);
      if (cap && end == width && row >= width) sum[width - 1 - begin] += sum_far(row_d_y, step, row, width);
    }
    for (std::int64_t n = begin; n < end; ++n) d_x.as<T>()[square * width + n] = static_cast<T>(sum[n - begin]);
  });
}

// Two entries of a table next to a position, and the weight of the higher one. The look-ups are not compiled for newer
// processors: the compiler would use gather instructions there, which take twice as long as single loads.
template <class T>
struct Place {
  std::int32_t low, high;
  T weight;

  Place(T position, std::int32_t last) {
    const auto index = attention::table_index(position, static_cast<T>(last));
    low = index.low;
    high = low < last ? low + 1 : last;
    weight = index.w;
  }
};

template <class T>
void interpolate_row(T* y, const T* table, const T* position, std::int32_t last, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) {
    const Place<T> place(position[j], last);
    y[j] = (T{1} - place.weight) * table[place.low] + place.weight * table[place.high];
  }
}

// Neighbouring positions often have the same entries. Four copies of the row of d_table, used in turn, keep an addition
// from waiting for the previous one.
constexpr std::int64_t table_copies = 4;
// Doubles per thread: whole cache lines, and one more between threads.
std::int64_t sums_of_thread(std::int64_t entries) { return (table_copies * entries + 7) / 8 * 8 + 8; }

// sums is scratch for table_copies rows.
template <class T>
void interpolate_backward_row(T* d_table, T* d_position, const T* d_y, const T* table, const T* position,
                              std::int32_t last, std::int64_t n, double* sums) {
  const std::int64_t entries = std::int64_t{last} + 1;
  std::fill_n(sums, table_copies * entries, 0.0);
  for (std::int64_t j = 0; j < n; ++j) {
    const Place<T> place(position[j], last);
    double* const sum = sums + j % table_copies * entries;
    const double d = static_cast<double>(d_y[j]), d_high = static_cast<double>(place.weight) * d;
    sum[place.low] += d - d_high;
    sum[place.high] += d_high;
    d_position[j] = d_y[j] * (table[place.high] - table[place.low]);
  }
  for (std::int64_t i = 0; i < entries; ++i) {
    d_table[i] = static_cast<T>((sums[i] + sums[entries + i]) + (sums[2 * entries + i] + sums[3 * entries + i]));
  }
}

}  // namespace

void read_distance(View y, View x, bool cap) {
  if (y.numel() == 0) return;
  const std::int64_t length = y.shape.back(), width = x.shape.back();
  const auto loop = make_loop(leading_axes(y).shape, leading_axes(x));
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_for_blocks(y.numel() / length, rows_per_tile(length), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        T* const row_y = y.as<T>() + row * length;
        const std::int64_t i = row % length;
        read_distance_row(row_y, x.as<T>() + loop.element_offsets(row)[0], row_step(x), i, width, cap);
        std::fill(row_y + i + 1, row_y + length, T{0});
      }
    });
  });
}

void read_distance_backward(View d_x, View d_y, bool cap) {
  if (d_y.numel() == 0) return fill(d_x, 0.0);
  if (d_x.numel() == 0) return;
  const bool shared = d_x.shape.back(1) == 1;
  dispatch_floating(d_x.dtype, [&](auto type) {
    using T = decltype(type);
    shared ? read_distance_backward_shared<T>(d_x, d_y, cap) : read_distance_backward_own<T>(d_x, d_y, cap);
  });
}

void interpolate(View y, View table, View position, bool causal) {
  const std::int64_t entries = table.shape.back();
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_row<T>(y, position, causal, [&](T* row_y, const T* row_position, const Row& row) {
      interpolate_row(row_y, table.as<T>() + row.index * entries, row_position, static_cast<std::int32_t>(entries - 1),
                      row.padded);
    });
  });
}

std::int64_t interpolate_backward_workspace(View d_table) {
  return thread_count() * sums_of_thread(d_table.shape.back()) * static_cast<std::int64_t>(sizeof(double));
}

void interpolate_backward(View d_table, View d_position, View d_y, View table, View position, bool causal,
                          void* workspace) {
  const std::int64_t entries = table.shape.back(), width = position.shape.back();
  if (width == 0) return fill(d_table, 0.0);
  dispatch_floating(d_position.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_row<T>(d_position, d_y, causal, [&](T* row_d_position, const T* row_d_y, const Row& row) {
      double* const sums = static_cast<double*>(workspace) + omp_get_thread_num() * sums_of_thread(entries);
      interpolate_backward_row(d_table.as<T>() + row.index * entries, row_d_position, row_d_y,
                               table.as<T>() + row.index * entries, position.as<T>() + row.index * width,
                               static_cast<std::int32_t>(entries - 1), row.length, sums);
    });
  });
}

}  // namespace tally::cpu
