// Layer norm (Ba et al. 2016) and RMS norm (Zhang & Sennrich 2019) over rows of N:
//   x^ = (x - mean) rstd (RMS norm: x rstd),  y = x^ weight (+ bias)
// With g = d_y weight and means over the row:
//   d_x = rstd (g - mean(g) - x^ mean(g x^))  (RMS norm: without mean(g))
//   d_weight = sum_rows d_y x^,  d_bias = sum_rows d_y
// Rows are taken in blocks of fixed height. Each block adds its part of d_weight and d_bias into its own slot of the
// workspace; the parts are then added in order.
#include <cmath>
#include <type_traits>

#include "core/cpu/lanes.hpp"
#include "core/cpu/rows.hpp"
#include "core/device/kernels.hpp"

namespace tally::cpu {

namespace {

constexpr std::int64_t block_rows = 64;

std::int64_t block_count(std::int64_t rows) { return (rows + block_rows - 1) / block_rows; }

template <class T>
struct Moments {
  T mean, rstd;
};

template <bool centered, class T>
TALLY_CLONES Moments<T> moments_of(const T* x, std::int64_t n, double eps) {
  double mean = 0.0;
  if constexpr (centered) {
    mean = lane_sum(n, [&](std::int64_t j) TALLY_INLINED { return x[j]; }) / static_cast<double>(n);
  }
  const double squares = lane_sum(n, [&](std::int64_t j) TALLY_INLINED {
    const double deviation = static_cast<double>(x[j]) - mean;
    return deviation * deviation;
  });
  return {static_cast<T>(mean), static_cast<T>(1.0 / std::sqrt(squares / static_cast<double>(n) + eps))};
}

// bias may be null
template <class T, class Y>
TALLY_CLONES void normalise_row(Y* y, const T* x, Moments<T> moments, const T* weight, const T* bias, std::int64_t n) {
  if (bias) {
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) write(y + j, (x[j] - moments.mean) * moments.rstd * weight[j] + bias[j]);
  } else {
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) write(y + j, x[j] * moments.rstd * weight[j]);
  }
}
TALLY_CLONES void round_row(Bfloat16* y, const float* x, std::int64_t n) {
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) write(y + j, x[j]);
}

// Adds to d_weight and, if centered, to d_bias; with `add` also to d_x.
template <bool centered, bool add, class T, class X>
TALLY_CLONES void backward_row(T* d_x, T* d_weight, T* d_bias, const T* d_y, const X* x, Moments<T> moments,
                               const T* weight, std::int64_t n) {
  const T mean = centered ? moments.mean : T{0};
  const T rstd = moments.rstd;
  double sum = 0.0;
  if constexpr (centered) {
    sum = lane_sum(n, [&](std::int64_t j) TALLY_INLINED { return d_y[j] * weight[j]; });
  }
  const double product = lane_sum(
      n, [&](std::int64_t j) TALLY_INLINED { return d_y[j] * weight[j] * ((static_cast<T>(x[j]) - mean) * rstd); });
  const T mean_g = static_cast<T>(sum / static_cast<double>(n));
  const T mean_product = static_cast<T>(product / static_cast<double>(n));
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) {
    const T normalised = (static_cast<T>(x[j]) - mean) * rstd, gradient = d_y[j];
    d_weight[j] += gradient * normalised;
    if constexpr (centered) d_bias[j] += gradient;
    const T d = rstd * (gradient * weight[j] - mean_g - normalised * mean_product);
    d_x[j] = add ? d_x[j] + d : d;
  }
}

// total[j] = parts[0][j] + parts[1][j] + ..., with a stride of `step` between the parts.
template <class T>
void add_parts(T* total, const T* parts, std::int64_t count, std::int64_t step, std::int64_t n) {
  constexpr std::int64_t strip = 256;
  parallel_for_blocks(n, strip, [&](std::int64_t begin, std::int64_t end) {
    double sum[strip] = {};
    for (std::int64_t part = 0; part < count; ++part) {
      for (std::int64_t j = begin; j < end; ++j) sum[j - begin] += static_cast<double>(parts[part * step + j]);
    }
    for (std::int64_t j = begin; j < end; ++j) total[j] = static_cast<T>(sum[j - begin]);
  });
}

template <bool centered>
void normalise(const View& y, const View& mean, const View& rstd, const View& x_bf16, const View& x, const View& weight,
               const View& bias, double eps) {
  const std::int64_t rows = x.shape[0], n = x.shape[1];
  dispatch_mixed(x.dtype, y.dtype, [&](auto type, auto result) {
    using T = decltype(type);
    using Y = decltype(result);
    parallel_for_blocks(rows, rows_per_tile(n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        Y* const row_y = y.as<Y>() + row * n;
        const T* row_x = x.as<T>() + row * x.strides[0];
        if constexpr (std::is_same_v<T, Y>) {
          for (std::int64_t j = 0; row_step(x) != 1 && j < n; ++j) row_y[j] = row_x[j * row_step(x)];
          if (row_step(x) != 1) row_x = row_y;
        }
        const Moments<T> moments = moments_of<centered>(row_x, n, eps);
        if constexpr (centered) mean.as<T>()[row] = moments.mean;
        rstd.as<T>()[row] = moments.rstd;
        if constexpr (std::is_same_v<T, float>) {
          if (x_bf16) round_row(x_bf16.as<Bfloat16>() + row * n, row_x, n);
        }
        normalise_row(row_y, row_x, moments, weight.as<T>(), bias.as<T>(), n);
      }
    });
  });
}

template <bool centered>
void differentiate(const View& d_x, const View& d_weight, const View& d_bias, const View& d_y, const View& x,
                   const View& weight, const View& mean, const View& rstd, bool add, void* workspace) {
  const std::int64_t rows = x.shape[0], n = x.shape[1], step = n * (centered ? 2 : 1);
  if (rows == 0) {
    fill(d_weight, 0.0);
    if constexpr (centered) fill(d_bias, 0.0);
    return;
  }
  dispatch_mixed(d_x.dtype, x.dtype, [&](auto type, auto mixed) {
    using T = decltype(type);
    using X = decltype(mixed);
    T* const parts = static_cast<T*>(workspace);
    parallel_for_blocks(rows, block_rows, [&](std::int64_t begin, std::int64_t end) {
      T* const part = parts + begin / block_rows * step;
      std::fill_n(part, step, T{0});
      for (std::int64_t row = begin; row < end; ++row) {
        T* const row_d_x = d_x.as<T>() + row * n;
        const T* row_d_y = d_y.as<T>() + row * d_y.strides[0];
        if (row_step(d_y) != 1) {
          for (std::int64_t j = 0; j < n; ++j) row_d_x[j] = row_d_y[j * row_step(d_y)];
          row_d_y = row_d_x;
        }
        const Moments<T> moments{centered ? mean.as<T>()[row] : T{0}, rstd.as<T>()[row]};
        const auto row_of = add ? backward_row<centered, true, T, X> : backward_row<centered, false, T, X>;
        row_of(row_d_x, part, part + n, row_d_y, x.as<X>() + row * n, moments, weight.as<T>(), n);
      }
    });
    add_parts(d_weight.as<T>(), parts, block_count(rows), step, n);
    if constexpr (centered) add_parts(d_bias.as<T>(), parts + n, block_count(rows), step, n);
  });
}

}  // namespace

std::int64_t norm_backward_workspace(View x) {
  const DType parts = compute_type(x.dtype);
  return block_count(x.shape[0]) * 2 * x.shape[1] * static_cast<std::int64_t>(size_of(parts));
}

void norm(View y, View mean, View rstd, View x_bf16, View x, View weight, View bias, double eps) {
  const auto compute = bias ? normalise<true> : normalise<false>;
  compute(y, mean, rstd, x_bf16, x, weight, bias, eps);
}

void norm_backward(View d_x, View, View d_weight, View d_bias, View d_y, View x, View weight, View mean, View rstd,
                   bool add, void* workspace) {
  const auto compute = d_bias ? differentiate<true> : differentiate<false>;
  compute(d_x, d_weight, d_bias, d_y, x, weight, mean, rstd, add, workspace);
}

}  // namespace tally::cpu
