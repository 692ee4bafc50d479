// Reading from tables by position.
//
// read_distance: y[i, j] = x[i, i-j] for j <= i, else 0 (relative encodings, toeplitz biases); its adjoint sums d_y over all
// places that read one element, along diagonals where the rows share one row of x.
//
// interpolate (CoPE, arXiv 2405.18719, eq. 5): c = min(p, P), f = floor(c), w = c - f,
//   y = (1-w) table[f] + w table[min(f+1, P)];  d_table[f] += (1-w) d_y,  d_table[min(f+1, P)] += w d_y,
//   d_p = d_y (table[min(f+1, P)] - table[f]), which is 0 for p >= P by itself.
#include "core/cpu/lanes.hpp"
#include "core/cpu/rows.hpp"
#include "core/kernels.hpp"

namespace tally::cpu {

namespace {

constexpr std::int64_t distance_block = 128;

template <class T>
TALLY_CLONES void read_distance_row(T* y, const T* x, std::int64_t step, std::int64_t row, std::int64_t width, bool cap) {
  const std::int64_t far = std::max<std::int64_t>(0, row - width + 1);  // columns at a distance >= width
  std::fill_n(y, far, cap ? x[(width - 1) * step] : T{0});
  for (std::int64_t j = far; j <= row; ++j) y[j] = x[(row - j) * step];
}

// sum[n - begin] += d_y[row - n] for the distances n = begin..end-1 that row `row` has. Capped, the last of all `width`
// distances takes the ones beyond it too.
template <class T>
TALLY_CLONES void add_distances(double* sum, const T* d_y, std::int64_t step, std::int64_t row, std::int64_t begin,
                                std::int64_t end, std::int64_t width, bool cap) {
  const std::int64_t count = std::min(end, row + 1) - begin;
  for (std::int64_t n = 0; n < count; ++n) sum[n] += static_cast<double>(d_y[(row - begin - n) * step]);
  if (cap && end == width && row >= width) {
    sum[width - 1 - begin] += lane_sum(row - width + 1, [&](std::int64_t j) __attribute__((always_inline)) {
      return d_y[j * step];
    });
  }
}

// The two table entries around a position, and the weight of the second. NaN gives weight NaN and a valid place.
template <class T>
struct Place {
  std::int32_t low, high;
  T weight;
};

template <class T>
TALLY_INLINE Place<T> place_of(T position, std::int32_t last) {
  const T limit = static_cast<T>(last);
  const T bounded = position < limit ? position : limit;
  const auto low = static_cast<std::int32_t>(bounded > T{0} ? bounded : T{0});
  return {low, low < last ? low + 1 : last, position >= limit ? T{0} : position - static_cast<T>(low)};
}

template <class T>
TALLY_CLONES void interpolate_row(T* y, const T* table, const T* position, std::int32_t last, std::int64_t n) {
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) {
    const Place<T> place = place_of(position[j], last);
    y[j] = (T{1} - place.weight) * table[place.low] + place.weight * table[place.high];
  }
}

template <class T>
TALLY_CLONES double sum_beyond(const T* d_y, const T* position, T limit, std::int64_t n) {
  return lane_sum(n, [&](std::int64_t j) __attribute__((always_inline)) {
    return position[j] >= limit ? d_y[j] : T{0};
  });
}

// Neighbouring positions meet the same entries: four copies of the row of d_table, taken in turn, keep an addition from
// waiting for the one before. Positions beyond the table, the most in a long row, are summed apart.
constexpr std::size_t table_copies = 4;

template <class T>
void add_to_table(T* d_table, const T* d_y, const T* position, std::int32_t last, std::int64_t n) {
  const auto entries = static_cast<std::size_t>(last) + 1;
  thread_local std::vector<double> scratch;
  scratch.assign(table_copies * entries, 0.0);
  double* const sums = scratch.data();
  const T limit = static_cast<T>(last);
  for (std::int64_t j = 0; j < n; ++j) {
    if (position[j] >= limit) continue;
    double* const sum = sums + static_cast<std::size_t>(j) % table_copies * entries;
    const Place<T> place = place_of(position[j], last);
    const double high_part = static_cast<double>(place.weight) * static_cast<double>(d_y[j]);
    sum[place.low] += static_cast<double>(d_y[j]) - high_part;
    sum[place.high] += high_part;
  }
  sums[entries - 1] += sum_beyond(d_y, position, limit, n);
  for (std::size_t i = 0; i < entries; ++i) {
    d_table[i] = static_cast<T>((sums[i] + sums[entries + i]) + (sums[2 * entries + i] + sums[3 * entries + i]));
  }
}

template <class T>
TALLY_CLONES void interpolate_backward_row(T* d_position, const T* d_y, const T* table, const T* position,
                                           std::int32_t last, std::int64_t n) {
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) {
    const Place<T> place = place_of(position[j], last);
    d_position[j] = d_y[j] * (table[place.high] - table[place.low]);
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
  if (d_x.numel() == 0) return;
  const std::int64_t length = d_y.shape.back(), width = d_x.shape.back();
  // The rows of d_y that read one row of d_x: all of a square, or one.
  const std::int64_t readers = d_x.shape.back(1) == 1 ? length : 1;
  const std::int64_t blocks = (width + distance_block - 1) / distance_block;
  const auto loop = make_loop(leading_axes(d_y).shape, leading_axes(d_y));
  dispatch_floating(d_x.dtype, [&](auto type) {
    using T = decltype(type);
    const std::int64_t tiles = d_x.numel() / width * blocks;
    parallel_for_blocks(tiles, rows_per_tile(readers * distance_block), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t tile = first; tile < last; ++tile) {
        const std::int64_t row_x = tile / blocks;
        const std::int64_t begin = tile % blocks * distance_block, end = std::min(width, begin + distance_block);
        double sum[distance_block] = {};
        for (std::int64_t row = row_x * readers; row < (row_x + 1) * readers; ++row) {
          add_distances(sum, d_y.as<T>() + loop.element_offsets(row)[0], row_step(d_y), row % length, begin, end, width,
                        cap);
        }
        for (std::int64_t n = begin; n < end; ++n) d_x.as<T>()[row_x * width + n] = static_cast<T>(sum[n - begin]);
      }
    });
  });
}

void interpolate(View y, View table, View position, bool causal) {
  const std::int64_t entries = table.shape.back();
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_row<T>(y, position, causal, [&](T* row_y, const T* row_position, std::int64_t n, std::int64_t row) {
      interpolate_row(row_y, table.as<T>() + row * entries, row_position, static_cast<std::int32_t>(entries - 1), n);
    });
  });
}

void interpolate_backward(View d_table, View d_position, View d_y, View table, View position, bool causal) {
  const std::int64_t entries = table.shape.back(), width = position.shape.back();
  if (width == 0) return fill(d_table, 0.0);
  dispatch_floating(d_position.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_row<T>(d_position, d_y, causal, [&](T* row_d_position, const T* row_d_y, std::int64_t n, std::int64_t row) {
      const T* const row_position = position.as<T>() + row * width;
      const auto last = static_cast<std::int32_t>(entries - 1);
      add_to_table(d_table.as<T>() + row * entries, row_d_y, row_position, last, n);
      interpolate_backward_row(row_d_position, row_d_y, table.as<T>() + row * entries, row_position, last, n);
    });
  });
}

}  // namespace tally::cpu
