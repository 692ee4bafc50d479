// Running sums along rows, carried in double. One thread per row: long sums with few rows occur only in reference
// attention, which is for reading and for tests.
#include "core/device/kernels.hpp"
#include "cuda/rows.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

template <class T>
struct ScanRow {
  T* y;
  const T* x;
  Loop<1> leading;
  std::int64_t width, step;
  bool reverse, causal;

  __device__ void operator()(std::int64_t row) const {
    const T* const row_x = x + leading.element_offsets(row)[0];
    T* const row_y = y + row * width;
    const std::int64_t n = causal ? row % width + 1 : width;
    double sum = 0;
    for (std::int64_t k = 0; k < n; ++k) {
      const std::int64_t j = reverse ? n - 1 - k : k;
      sum += static_cast<double>(row_x[j * step]);
      row_y[j] = static_cast<T>(sum);
    }
    for (std::int64_t j = n; j < width; ++j) row_y[j] = 0;
  }
};

template <class T>
struct DecayedScanRow {
  T* y;
  const T* decay;
  const T* x;
  Loop<2> leading;
  std::int64_t width, decay_step, x_step;

  __device__ void operator()(std::int64_t row) const {
    const auto offsets = leading.element_offsets(row);
    const T* const row_decay = decay + offsets[0];
    const T* const row_x = x + offsets[1];
    double sum = 0;
    for (std::int64_t j = 0; j < width; ++j) {
      sum = static_cast<double>(row_decay[j * decay_step]) * sum + static_cast<double>(row_x[j * x_step]);
      y[row * width + j] = static_cast<T>(sum);
    }
  }
};

template <class T>
struct DecayedScanRowBackward {
  T* d_x;
  T* d_decay;
  const T* d_y;
  const T* decay;
  const T* y;
  Loop<2> leading;
  std::int64_t width, decay_step, d_y_step;

  __device__ void operator()(std::int64_t row) const {
    const auto offsets = leading.element_offsets(row);
    const T* const row_decay = decay + offsets[0];
    const T* const row_d_y = d_y + offsets[1];
    double carry = 0;  // gradient from the sums after j
    for (std::int64_t j = width - 1; j >= 0; --j) {
      const std::int64_t element = row * width + j;
      const double d_sum = static_cast<double>(row_d_y[j * d_y_step]) + carry;
      d_x[element] = static_cast<T>(d_sum);
      d_decay[element] = j > 0 ? static_cast<T>(d_sum * static_cast<double>(y[element - 1])) : T{0};
      carry = static_cast<double>(row_decay[j * decay_step]) * d_sum;
    }
  }
};

}  // namespace

void cumsum(View y, View x, bool reverse, bool causal) {
  if (y.numel() == 0) return;
  const View leading = leading_axes(x);
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_index(leading.numel(), ScanRow<T>{y.as<T>(), x.as<T>(), make_loop(leading.shape, leading), x.shape.back(),
                                               row_step(x), reverse, causal});
  });
}

void decayed_cumsum(View y, View decay, View x) {
  if (y.numel() == 0) return;
  const View leading_decay = leading_axes(decay), leading_x = leading_axes(x);
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_index(leading_x.numel(), DecayedScanRow<T>{y.as<T>(), decay.as<T>(), x.as<T>(),
                                                        make_loop(leading_x.shape, leading_decay, leading_x),
                                                        y.shape.back(), row_step(decay), row_step(x)});
  });
}

void decayed_cumsum_backward(View d_x, View d_decay, View d_y, View decay, View y) {
  if (y.numel() == 0) return;
  const View leading_decay = leading_axes(decay), leading_d_y = leading_axes(d_y);
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_index(leading_d_y.numel(),
                   DecayedScanRowBackward<T>{d_x.as<T>(), d_decay.as<T>(), d_y.as<T>(), decay.as<T>(), y.as<T>(),
                                             make_loop(leading_d_y.shape, leading_decay, leading_d_y), y.shape.back(),
                                             row_step(decay), row_step(d_y)});
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
