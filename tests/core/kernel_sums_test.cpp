// Sums that kernels form block by block.
#include <gtest/gtest.h>

#include <cstring>

#include <cmath>

#include "core/device/kernels.hpp"
#include "core/device/workspace.hpp"
#include "tests/core/kernel_array.hpp"

namespace tally::kernel_sums_test {

// Rows that fill blocks to the last: nothing is added that no block has written.
TEST(KernelSums, NormsAddUpTheBlocksThatThereAre) {
  for (const std::int64_t rows : {63, 64, 65, 128}) {
    const Shape shape{rows, 3};
    Array<double> x(shape), d_y(shape, 2), weight({3}, 3), mean({rows}), rstd({rows}), y(shape), d_x(shape);
    Array<double> d_weight({3}), d_bias({3});
    const std::int64_t bytes = cpu::norm_backward_workspace(x.view);
    const Workspace workspace(bytes, {});
    std::memset(workspace.data(), 0x7f, static_cast<std::size_t>(bytes));
    cpu::norm(y.view, mean.view, rstd.view, {}, x.view, weight.view, weight.view, 1e-5);
    cpu::norm_backward(d_x.view, {}, d_weight.view, d_bias.view, d_y.view, x.view, weight.view, mean.view, rstd.view,
                       false, workspace.data());
    for (std::int64_t j = 0; j < 3; ++j) {
      double sum = 0;
      for (std::int64_t row = 0; row < rows; ++row) sum += d_y.at(row * 3 + j);
      EXPECT_NEAR(d_bias.at(j), sum, 1e-12) << rows;
    }
  }
}

// The sum continues in double from block to block, and only the written values are rounded.
TEST(KernelSums, RunningSumsAreRoundedOnce) {
  constexpr std::int64_t length = 5000;
  Array<float> x({1, length}), y({1, length});
  for (std::int64_t j = 0; j < length; ++j) x.at(j) = std::abs(x.at(j));
  for (const bool reverse : {false, true}) {
    cpu::cumsum(y.view, x.view, reverse, false);
    double sum = 0;
    for (std::int64_t n = 0; n < length; ++n) {
      const std::int64_t j = reverse ? length - 1 - n : n;
      sum += static_cast<double>(x.at(j));
      ASSERT_NEAR(static_cast<double>(y.at(j)), sum, 0x1.01p-24 * sum) << j;
    }
  }
}

}  // namespace tally::kernel_sums_test
