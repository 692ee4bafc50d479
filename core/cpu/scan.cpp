// Running sums along rows, from the left or from the right. The sum is carried in double, so that a long row loses
// nothing to rounding but the last bit of each result.
#include "core/cpu/rows.hpp"
#include "core/kernels.hpp"

namespace tally::cpu {

namespace {

template <class T>
void prefix_sum(T* y, const T* x, std::int64_t n) {
  double sum = 0.0;
  for (std::int64_t j = 0; j < n; ++j) {
    sum += static_cast<double>(x[j]);
    y[j] = static_cast<T>(sum);
  }
}

template <class T>
void suffix_sum(T* y, const T* x, std::int64_t n) {
  double sum = 0.0;
  for (std::int64_t j = n - 1; j >= 0; --j) {
    sum += static_cast<double>(x[j]);
    y[j] = static_cast<T>(sum);
  }
}

}  // namespace

void cumsum(View y, View x, bool reverse, bool causal) {
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_row<T>(y, x, causal, [&](T* row_y, const T* row_x, std::int64_t n, std::int64_t) {
      reverse ? suffix_sum(row_y, row_x, n) : prefix_sum(row_y, row_x, n);
    });
  });
}

}  // namespace tally::cpu
