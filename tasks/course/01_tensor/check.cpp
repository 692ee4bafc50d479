// The test of exercise 1.
#include <gtest/gtest.h>

#include <vector>

#include "core/tensor.hpp"

tally::Tensor sliding_windows(const tally::Tensor& x, std::int64_t width);

namespace tally {
namespace {

TEST(SlidingWindows, OfAVector) {
  const Tensor windows = sliding_windows(Tensor::from<float>({1, 2, 3, 4, 5}, {5}), 3);
  ASSERT_EQ(to_text(windows.shape()), "[3, 3]");
  EXPECT_EQ(windows.to_vector<float>(), (std::vector<float>{1, 2, 3, 2, 3, 4, 3, 4, 5}));
}

TEST(SlidingWindows, OfAColumn) {
  const Tensor column = Tensor::from<float>({1, 9, 2, 9, 3, 9}, {3, 2}).detached_select(1, 0);
  EXPECT_EQ(sliding_windows(column, 2).to_vector<float>(), (std::vector<float>{1, 2, 2, 3}));
}

TEST(SlidingWindows, ShareTheMemory) {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4}, {4});
  const Tensor windows = sliding_windows(x, 2);
  Tensor third = x.detached_slice(0, 2, 3);
  third.fill(7);
  EXPECT_EQ(windows.to_vector<float>(), (std::vector<float>{1, 2, 2, 7, 7, 4}));
}

}  // namespace
}  // namespace tally
