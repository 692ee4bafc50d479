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

}  // namespace tally::TALLY_CUDA_NAMESPACE
