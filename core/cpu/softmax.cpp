// Softmax over rows:  y_j = e^(x_j - m) / sum_k e^(x_k - m),  m = max_k x_k,  and its derivative from the result:
// d_x_j = y_j (d_y_j - sum_k d_y_k y_k).  Causal: row i of a square has the columns 0..i, the others are 0.
// As in other libraries, a row in which all x are -infinity gives NaN.
#include "core/cpu/lanes.hpp"
#include "core/cpu/rows.hpp"
#include "core/device/kernels.hpp"

namespace tally::cpu {

namespace {

template <class T>
TALLY_CLONES void softmax_row(T* y, const T* x, std::int64_t n) {
  const T m = lane_max<T>(n, [&](std::int64_t j) TALLY_INLINED { return x[j]; });
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) y[j] = math::exp(x[j] - m);
  const double sum = lane_sum(n, [&](std::int64_t j) TALLY_INLINED { return y[j]; });
  const T factor = static_cast<T>(1.0 / sum);
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) y[j] *= factor;
}

template <class T, class Y>
TALLY_CLONES void softmax_backward_row(T* d_x, const T* d_y, const Y* y, Row row) {
  const double product = lane_sum(row.length, [&](std::int64_t j) TALLY_INLINED {
    return static_cast<double>(d_y[j]) * static_cast<double>(y[j]);
  });
  const T mean = static_cast<T>(product);
#pragma omp simd
  for (std::int64_t j = 0; j < row.padded; ++j) d_x[j] = static_cast<T>(y[j]) * (d_y[j] - mean);
}

}  // namespace

void softmax(View y, View x, bool causal) {
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_row<T>(y, x, causal,
                    [](T* row_y, const T* row_x, const Row& row) { softmax_row(row_y, row_x, row.length); });
  });
}

void softmax_backward(View d_x, View d_y, View y, bool causal) {
  dispatch_mixed(d_x.dtype, y.dtype, [&](auto type, auto mixed) {
    using T = decltype(type);
    using Y = decltype(mixed);
    for_each_row<T>(d_x, d_y, causal, [&](T* row_d_x, const T* row_d_y, const Row& row) {
      softmax_backward_row(row_d_x, row_d_y, y.as<Y>() + row.index * y.shape.back(), row);
    });
  });
}

}  // namespace tally::cpu
