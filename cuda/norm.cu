// Layer norm and RMS norm over rows (formulas: core/cpu/norm.cpp), one warp per row. In backward, a block has 32 rows,
// whose columns its threads sum for the gradients of weight and bias. A second kernel adds up the blocks in order.
#include <cmath>

#include "core/device/kernels.hpp"
#include "cuda/rows.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

constexpr std::int64_t block_rows = 32;
constexpr int block_threads = 256;

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

// Backward of the rows of a block: d_x, and the sums over these rows for d_weight and d_bias.
template <class T, class X, bool centered>
struct NormBackward {
  T* d_x;
  Bfloat16* d_x_bf16;  // or null
  T* parts;            // [blocks][weight, bias][width]
  const T* d_y;
  const X* x;
  const T *weight, *mean, *rstd;
  std::int64_t rows, width, row_step, column_step, weight_step;
  bool add;

  __device__ T normalised(std::int64_t row, std::int64_t j) const {
    return (static_cast<T>(x[row * width + j]) - (centered ? mean[row] : T{0})) * rstd[row];
  }
  __device__ T gradient(std::int64_t row, std::int64_t j) const { return d_y[row * row_step + j * column_step]; }

  __device__ void backward_of_row(std::int64_t row, WarpOfRow threads) const {
    const auto g = [&](std::int64_t j) { return gradient(row, j) * weight[j * weight_step]; };
    const double sum = centered ? row_sum(width, threads, g) : 0.0;
    const double product = row_sum(width, threads, [&](std::int64_t j) { return g(j) * normalised(row, j); });
    const T mean_g = static_cast<T>(sum / static_cast<double>(width));
    const T mean_product = static_cast<T>(product / static_cast<double>(width));
    for (std::int64_t j = threads.index; j < width; j += warp_lanes) {
      const std::int64_t n = row * width + j;
      const T d = rstd[row] * (g(j) - mean_g - normalised(row, j) * mean_product), total = add ? d_x[n] + d : d;
      d_x[n] = total;
      if (d_x_bf16 != nullptr) d_x_bf16[n] = static_cast<Bfloat16>(total);
    }
  }

  // Column j of the rows from `first` to `end`.
  __device__ void sum_column(std::int64_t j, std::int64_t first, std::int64_t end, T* own_parts) const {
    T d_weight = 0, d_bias = 0;
    TALLY_UNROLL_BY(8)
    for (std::int64_t row = first; row < end; ++row) {
      d_weight += gradient(row, j) * normalised(row, j);
      d_bias += gradient(row, j);
    }
    own_parts[j] = d_weight;
    own_parts[width + j] = d_bias;
  }
};

template <class T, class X, bool centered>
__global__ void norm_backward_kernel(const __grid_constant__ NormBackward<T, X, centered> norm) {
  const std::int64_t first = std::int64_t{blockIdx.x} * block_rows;
  const std::int64_t end = first + block_rows < norm.rows ? first + block_rows : norm.rows;
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t row = first + thread / warp_lanes; row < end; row += block_threads / warp_lanes) {
    norm.backward_of_row(row, WarpOfRow{thread % warp_lanes});
  }
  T* const own_parts = norm.parts + std::int64_t{blockIdx.x} * 2 * norm.width;
  for (std::int64_t j = thread; j < norm.width; j += block_threads) norm.sum_column(j, first, end, own_parts);
}

template <class T>
struct AddBlocks {
  T *d_weight, *d_bias;
  const T* parts;
  std::int64_t blocks, width;

  __device__ void operator()(std::int64_t n) const {
    double sum = 0;
    TALLY_UNROLL_BY(8)
    for (std::int64_t block = 0; block < blocks; ++block) {
      sum += static_cast<double>(parts[block * 2 * width + n]);
    }
    (n < width ? d_weight[n] : d_bias[n - width]) = static_cast<T>(sum);
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
void differentiate(const View& d_x, const View& d_x_bf16, const View& d_weight, const View& d_bias, const View& d_y,
                   const View& x, const View& weight, const View& mean, const View& rstd, bool add, void* workspace) {
  const std::int64_t rows = x.shape[0], n = x.shape[1], blocks = block_count(rows);
  dispatch_mixed(d_x.dtype, x.dtype, [&](auto type, auto mixed) {
    using T = decltype(type);
    using X = decltype(mixed);
    T* const parts = static_cast<T*>(workspace);
    const NormBackward<T, X, centered> norm{d_x.as<T>(),
                                            d_x_bf16.as<Bfloat16>(),
                                            parts,
                                            d_y.as<T>(),
                                            x.as<X>(),
                                            weight.as<T>(),
                                            mean.as<T>(),
                                            rstd.as<T>(),
                                            rows,
                                            n,
                                            d_y.strides[0],
                                            row_step(d_y),
                                            weight.strides[0],
                                            add};
    if (blocks > 0) {
      launch(norm_backward_kernel<T, X, centered>, Grid(static_cast<unsigned>(blocks)), block_threads, 0,
             context().stream, norm);
    }
    for_each_index(centered ? 2 * n : n, AddBlocks<T>{d_weight.as<T>(), d_bias.as<T>(), parts, blocks, n});
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

void norm_backward(View d_x, View d_x_bf16, View d_weight, View d_bias, View d_y, View x, View weight, View mean,
                   View rstd, bool add, void* workspace) {
  const auto compute = d_bias ? differentiate<true> : differentiate<false>;
  compute(d_x, d_x_bf16, d_weight, d_bias, d_y, x, weight, mean, rstd, add, workspace);
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
