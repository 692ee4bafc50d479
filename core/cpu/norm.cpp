// Layer norm (Ba et al. 2016) and RMS norm (Zhang & Sennrich 2019) over rows of N:
//   x^ = (x - mean) rstd (RMS norm: x rstd),  y = x^ weight (+ bias)
// With g = d_y weight and means over the row:
//   d_x = rstd (g - mean(g) - x^ mean(g x^))  (RMS norm: without mean(g))
//   d_weight = sum_rows d_y x^,  d_bias = sum_rows d_y
// Rows are taken in blocks of fixed height. Each block adds its part of d_weight and d_bias into its own slot in the
// workspace; the parts are then added in order.
#include <cmath>

#include "core/cpu/lanes.hpp"
#include "core/cpu/rows.hpp"
#include "core/kernels.hpp"

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
template <class T>
TALLY_CLONES void normalise_row(T* y, const T* x, Moments<T> moments, const T* weight, const T* bias, std::int64_t n) {
  if (bias) {
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) y[j] = (x[j] - moments.mean) * moments.rstd * weight[j] + bias[j];
  } else {
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) y[j] = x[j] * moments.rstd * weight[j];
  }
}

// Adds to d_weight and (centered) d_bias.
template <bool centered, class T, class X>
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
    d_x[j] = rstd * (gradient * weight[j] - mean_g - normalised * mean_product);
  }
}

// total[j] = parts[0][j] + parts[1][j] + ..., the parts `step` apart.
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
void norm(const View& y, const View& mean, const View& rstd, const View& x, const View& weight, const View& bias,
          double eps) {
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_row<T>(y, x, false, [&](T* row_y, const T* row_x, const Row& row) {
      const std::int64_t n = row.length;
      const Moments<T> moments = moments_of<centered>(row_x, n, eps);
      if constexpr (centered) mean.as<T>()[row.index] = moments.mean;
      rstd.as<T>()[row.index] = moments.rstd;
      normalise_row(row_y, row_x, moments, weight.as<T>(), bias.as<T>(), n);
    });
  });
}

template <bool centered>
void norm_backward(const View& d_x, const View& d_weight, const View& d_bias, const View& d_y, const View& x,
                   const View& weight, const View& mean, const View& rstd, void* workspace) {
  const std::int64_t rows = x.shape[0], n = x.shape[1], step = n * (centered ? 2 : 1);
  if (rows == 0) {
    fill(d_weight, 0.0);
    if constexpr (centered) fill(d_bias, 0.0);
    return;
  }
  dispatch_kept(d_x.dtype, x.dtype, [&](auto type, auto kept) {
    using T = decltype(type);
    using X = decltype(kept);
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
        backward_row<centered>(row_d_x, part, part + n, row_d_y, x.as<X>() + row * n, moments, weight.as<T>(), n);
      }
    });
    add_parts(d_weight.as<T>(), parts, block_count(rows), step, n);
    if constexpr (centered) add_parts(d_bias.as<T>(), parts + n, block_count(rows), step, n);
  });
}

}  // namespace

std::int64_t norm_backward_workspace(View x) {
  const DType parts = x.dtype == DType::bf16 ? DType::f32 : x.dtype;
  return block_count(x.shape[0]) * 2 * x.shape[1] * static_cast<std::int64_t>(size_of(parts));
}

void layer_norm(View y, View mean, View rstd, View x, View weight, View bias, double eps) {
  norm<true>(y, mean, rstd, x, weight, bias, eps);
}

void layer_norm_backward(View d_x, View d_weight, View d_bias, View d_y, View x, View weight, View mean, View rstd,
                         void* workspace) {
  norm_backward<true>(d_x, d_weight, d_bias, d_y, x, weight, mean, rstd, workspace);
}

void rms_norm(View y, View rstd, View x, View weight, double eps) { norm<false>(y, {}, rstd, x, weight, {}, eps); }

void rms_norm_backward(View d_x, View d_weight, View d_y, View x, View weight, View rstd, void* workspace) {
  norm_backward<false>(d_x, d_weight, {}, d_y, x, weight, {}, rstd, workspace);
}

}  // namespace tally::cpu
