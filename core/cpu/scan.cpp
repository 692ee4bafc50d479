// Running sums along rows, from the left or from the right, with or without decay. The sum is carried in double, so
// that each result of a long row has an error of one rounding.
#include "core/cpu/rows.hpp"
#include "core/device/kernels.hpp"

namespace tally::cpu {

namespace {

// Each addition has to wait for the previous one. Blocks are summed independently first, so that only one addition in
// `block` waits for the sum to its left (reverse: right).
template <bool reverse, class T>
TALLY_CLONES void scan_row(T* y, const T* x, std::int64_t n) {
  constexpr std::int64_t block = 8;
  const auto at = [n](std::int64_t j) TALLY_INLINED { return reverse ? n - 1 - j : j; };
  double carry = 0.0;
  std::int64_t j = 0;
  for (; j + block <= n; j += block) {
    double sum[block];
    sum[0] = static_cast<double>(x[at(j)]);
    for (std::int64_t l = 1; l < block; ++l) sum[l] = sum[l - 1] + static_cast<double>(x[at(j + l)]);
    for (std::int64_t l = 0; l < block; ++l) y[at(j + l)] = static_cast<T>(carry + sum[l]);
    carry += sum[block - 1];
  }
  for (; j < n; ++j) {
    carry += static_cast<double>(x[at(j)]);
    y[at(j)] = static_cast<T>(carry);
  }
}

// Calls f(row, offsets) on all threads, with the row's index and its offset in each view; views may have any strides.
template <class F, class... Views>
void for_each_row_of(const View& y, F&& f, const Views&... views) {
  const std::int64_t width = y.shape.back();
  const auto loop = make_loop(leading_axes(y).shape, leading_axes(views)...);
  parallel_for_blocks(y.numel() / width, rows_per_tile(width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) f(row, loop.element_offsets(row));
  });
}

}  // namespace

void cumsum(View y, View x, bool reverse, bool causal) {
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_row<T>(y, x, causal, [&](T* row_y, const T* row_x, const Row& row) {
      reverse ? scan_row<true>(row_y, row_x, row.length) : scan_row<false>(row_y, row_x, row.length);
    });
  });
}

void decayed_cumsum(View y, View decay, View x) {
  if (y.numel() == 0) return;
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    const std::int64_t width = y.shape.back(), decay_step = row_step(decay), x_step = row_step(x);
    for_each_row_of(
        y,
        [&](std::int64_t row, const auto& offsets) {
          const T* const a = decay.as<T>() + offsets[0];
          const T* const row_x = x.as<T>() + offsets[1];
          T* const row_y = y.as<T>() + row * width;
          double sum = 0;
          for (std::int64_t j = 0; j < width; ++j) {
            sum = static_cast<double>(a[j * decay_step]) * sum + static_cast<double>(row_x[j * x_step]);
            row_y[j] = static_cast<T>(sum);
          }
        },
        decay, x);
  });
}

void decayed_cumsum_backward(View d_x, View d_decay, View d_y, View decay, View y) {
  if (y.numel() == 0) return;
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    const std::int64_t width = y.shape.back(), decay_step = row_step(decay), d_y_step = row_step(d_y);
    for_each_row_of(
        y,
        [&](std::int64_t row, const auto& offsets) {
          const T* const a = decay.as<T>() + offsets[0];
          const T* const row_d_y = d_y.as<T>() + offsets[1];
          const T* const row_y = y.as<T>() + row * width;
          T* const row_d_x = d_x.as<T>() + row * width;
          T* const row_d_decay = d_decay.as<T>() + row * width;
          double carry = 0;  // gradient from the sums after j
          for (std::int64_t j = width - 1; j >= 0; --j) {
            const double d_sum = static_cast<double>(row_d_y[j * d_y_step]) + carry;
            row_d_x[j] = static_cast<T>(d_sum);
            row_d_decay[j] = j > 0 ? static_cast<T>(d_sum * static_cast<double>(row_y[j - 1])) : T{0};
            carry = static_cast<double>(a[j * decay_step]) * d_sum;
          }
        },
        decay, d_y);
  });
}

}  // namespace tally::cpu
