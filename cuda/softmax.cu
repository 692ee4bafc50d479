// Softmax over rows, and its derivative from the result (formulas: core/cpu/softmax.cpp). One warp per row: three
// passes over x (maximum, sum, result), the last two mostly from the cache.
#include "core/device/kernels.hpp"
#include "core/math/math.hpp"
#include "cuda/rows.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

template <class T>
struct SoftmaxRow {
  T* y;
  const T* x;
  std::int64_t width, step;
  bool causal;

  __device__ void operator()(std::int64_t row, std::int64_t offset, WarpOfRow threads) const {
    const std::int64_t n = causal ? row % width + 1 : width;
    const T* const row_x = x + offset;
    T* const row_y = y + row * width;
    const T m = row_max<T>(n, threads, [&](std::int64_t j) { return row_x[j * step]; });
    const double sum = row_sum(n, threads, [&](std::int64_t j) { return math::exp(row_x[j * step] - m); });
    const T factor = static_cast<T>(1.0 / sum);
    for (std::int64_t j = threads.index; j < width; j += warp_lanes) {
      row_y[j] = j < n ? math::exp(row_x[j * step] - m) * factor : T{0};
    }
  }
};

template <class T, class Y>
struct SoftmaxBackwardRow {
  T* d_x;
  const T* d_y;
  const Y* y;
  std::int64_t width, step;
  bool causal;

  __device__ void operator()(std::int64_t row, std::int64_t offset, WarpOfRow threads) const {
    const std::int64_t n = causal ? row % width + 1 : width;
    const T* const row_d_y = d_y + offset;
    const Y* const row_y = y + row * width;
    const double product = row_sum(n, threads, [&](std::int64_t j) {
      return static_cast<double>(row_d_y[j * step]) * static_cast<double>(row_y[j]);
    });
    const T mean = static_cast<T>(product);
    for (std::int64_t j = threads.index; j < width; j += warp_lanes) {
      d_x[row * width + j] = j < n ? static_cast<T>(row_y[j]) * (row_d_y[j * step] - mean) : T{0};
    }
  }
};

}  // namespace

void softmax(View y, View x, bool causal) {
  if (y.numel() == 0) return;
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_row(x, SoftmaxRow<T>{y.as<T>(), x.as<T>(), x.shape.back(), row_step(x), causal});
  });
}

void softmax_backward(View d_x, View d_y, View y, bool causal) {
  if (d_x.numel() == 0) return;
  dispatch_mixed(d_x.dtype, y.dtype, [&](auto type, auto mixed) {
    using T = decltype(type);
    using Y = decltype(mixed);
    for_each_row(d_y,
                 SoftmaxBackwardRow<T, Y>{d_x.as<T>(), d_y.as<T>(), y.as<Y>(), y.shape.back(), row_step(d_y), causal});
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
