// Running sums along rows, from the left or from the right. The sum is carried in double, so that each result of a long
// row has an error of one rounding.
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

}  // namespace

void cumsum(View y, View x, bool reverse, bool causal) {
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_row<T>(y, x, causal, [&](T* row_y, const T* row_x, const Row& row) {
      reverse ? scan_row<true>(row_y, row_x, row.length) : scan_row<false>(row_y, row_x, row.length);
    });
  });
}

}  // namespace tally::cpu
