// Layer norm and RMS norm over rows (formulas: core/cpu/norm.cpp). Forward and d_x: one warp per row. For the gradients
// of weight and bias, a thread sums one column of 64 rows, and then one thread sums the parts of a column, in fixed
// order.
#include <cmath>

#include "core/device/kernels.hpp"
#include "cuda/rows.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

constexpr std::int64_t block_rows = 64;

std::int64_t block_count(std::int64_t rows) { return (rows + block_rows - 1) / block_rows; }

template <class T, class Y, bool centered>
struct NormRow {
  Y* y;
  T *mean, *rstd;
  Bfloat16* x_bf16;  // or null
  const T *x, *weight, *bias;
  std::int64_t width, weight_step, bias_step;
  double eps;

  __device__ void operator()(std::int64_t row, std::int64_t offset, WarpOfRow threads) const {
    const T* const row_x = x + offset;
    double average = 0;
    if (centered) {
      average = row_sum(width, threads, [&](std::int64_t j) { return row_x[j]; }) / static_cast<double>(width);
    }
    const double squares = row_sum(width, threads, [&](std::int64_t j) {
      const double deviation = static_cast<double>(row_x[j]) - average;
      return deviation * deviation;
    });
    const T m = static_cast<T>(average);
    const T scale = static_cast<T>(1.0 / std::sqrt(squares / static_cast<double>(width) + eps));
    for (std::int64_t j = threads.index; j < width; j += warp_lanes) {
      T value = (centered ? row_x[j] - m : row_x[j]) * scale * weight[j * weight_step];
      if (centered) value += bias[j * bias_step];
      y[row * width + j] = static_cast<Y>(value);
      if (x_bf16 != nullptr) x_bf16[row * width + j] = static_cast<Bfloat16>(row_x[j]);
    }
    if (threads.index != 0) return;
    if (centered) mean[row] = m;
    rstd[row] = scale;
  }
};

template <class T, class X, bool centered>
struct NormBackwardRow {
  T* d_x;
  const T* d_y;
  const X* x;
  const T *weight, *mean, *rstd;
  std::int64_t width, step, weight_step;
  bool add;

  __device__ void operator()(std::int64_t row, std::int64_t offset, WarpOfRow threads) const {
    const T* const row_d_y = d_y + offset;
    const X* const row_x = x + row * width;
    const T m = centered ? mean[row] : T{0}, scale = rstd[row];
    const auto g = [&](std::int64_t j) { return row_d_y[j * step] * weight[j * weight_step]; };
    const double sum = centered ? row_sum(width, threads, g) : 0.0;
    const auto normalised = [&](std::int64_t j) { return (static_cast<T>(row_x[j]) - m) * scale; };
    const double product = row_sum(width, threads, [&](std::int64_t j) { return g(j) * normalised(j); });
    const T mean_g = static_cast<T>(sum / static_cast<double>(width));
    const T mean_product = static_cast<T>(product / static_cast<double>(width));
    for (std::int64_t j = threads.index; j < width; j += warp_lanes) {
      const T d = scale * (g(j) - mean_g - normalised(j) * mean_product);
      d_x[row * width + j] = add ? d_x[row * width + j] + d : d;
    }
  }
};

// Column j of 64 rows: scratch [blocks][2 or 1][width].
template <class T, class X, bool centered>
struct NormColumns {
  T* scratch;
  const T* d_y;
  const X* x;
  const T *mean, *rstd;
  std::int64_t rows, width, row_step, column_step;

  __device__ void operator()(std::int64_t n) const {
    const std::int64_t block = n / width, j = n % width;
    T d_weight = 0, d_bias = 0;
    const std::int64_t end = (block + 1) * block_rows < rows ? (block + 1) * block_rows : rows;
    for (std::int64_t row = block * block_rows; row < end; ++row) {
      const T gradient = d_y[row * row_step + j * column_step];
      d_weight += gradient * ((static_cast<T>(x[row * width + j]) - (centered ? mean[row] : T{0})) * rstd[row]);
      d_bias += gradient;
    }
    scratch[block * 2 * width + j] = d_weight;
    scratch[(block * 2 + 1) * width + j] = d_bias;
  }
};

template <class T>
struct AddBlocks {
  T* total;
  const T* parts;
  std::int64_t blocks, first, step;

  __device__ void operator()(std::int64_t j) const {
    double sum = 0;
    for (std::int64_t block = 0; block < blocks; ++block) sum += static_cast<double>(parts[first + block * step + j]);
    total[j] = static_cast<T>(sum);
  }
};

template <bool centered>
void normalise(const View& y, const View& mean, const View& rstd, const View& x_bf16, const View& x, const View& weight,
               const View& bias, double eps) {
  dispatch_mixed(x.dtype, y.dtype, [&](auto type, auto result) {
    using T = decltype(type);
    using Y = decltype(result);
    for_each_row(
        x, NormRow<T, Y, centered>{y.as<Y>(), mean.as<T>(), rstd.as<T>(), x_bf16.as<Bfloat16>(), x.as<T>(),
                                   weight.as<T>(), bias.as<T>(), x.shape[1], weight.strides[0], bias.strides[0], eps});
  });
}

template <bool centered>
void differentiate(const View& d_x, const View& d_weight, const View& d_bias, const View& d_y, const View& x,
                   const View& weight, const View& mean, const View& rstd, bool add, void* workspace) {
  const std::int64_t rows = x.shape[0], n = x.shape[1], blocks = block_count(rows);
  dispatch_mixed(d_x.dtype, x.dtype, [&](auto type, auto mixed) {
    using T = decltype(type);
    using X = decltype(mixed);
    T* const parts = static_cast<T*>(workspace);
    for_each_row(d_y, NormBackwardRow<T, X, centered>{d_x.as<T>(), d_y.as<T>(), x.as<X>(), weight.as<T>(), mean.as<T>(),
                                                      rstd.as<T>(), n, row_step(d_y), weight.strides[0], add});
    for_each_index(blocks * n, NormColumns<T, X, centered>{parts, d_y.as<T>(), x.as<X>(), mean.as<T>(), rstd.as<T>(),
                                                           rows, n, d_y.strides[0], row_step(d_y)});
    for_each_index(n, AddBlocks<T>{d_weight.as<T>(), parts, blocks, 0, 2 * n});
    if (centered) for_each_index(n, AddBlocks<T>{d_bias.as<T>(), parts, blocks, n, 2 * n});
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

void norm_backward(View d_x, View d_weight, View d_bias, View d_y, View x, View weight, View mean, View rstd, bool add,
                   void* workspace) {
  const auto compute = d_bias ? differentiate<true> : differentiate<false>;
  compute(d_x, d_weight, d_bias, d_y, x, weight, mean, rstd, add, workspace);
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
