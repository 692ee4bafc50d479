// The weight of softpick for one pair (core/attention/pair_functions.hpp) in the limits that no other rule has.
#include <gtest/gtest.h>

#include <limits>

#include "core/attention/pair_functions.hpp"

namespace tally::softpick_test {

TEST(Softpick, CountsAKeyWhoseExponentialUnderflows) {
  const attention::Softpick<float> found = attention::softpick(-1e4F, 0.0F, 1.0F);
  EXPECT_EQ(found.above, 0);
  EXPECT_EQ(found.size, 1);
}

TEST(Softpick, GivesAMaskedKeyNothing) {
  const attention::Softpick<float> found = attention::softpick(-std::numeric_limits<float>::infinity(), 0.0F, 1.0F);
  EXPECT_EQ(found.above, 0);
  EXPECT_EQ(found.size, 0);
  EXPECT_EQ(found.slope, 0);
}

TEST(Softpick, IsTheRectifiedExponentialMinusOne) {
  const attention::Softpick<double> found = attention::softpick(1.5, 0.0, 1.0);
  EXPECT_NEAR(found.above, 3.4816890703380645, 1e-14);  // e^1.5 - 1
  EXPECT_NEAR(found.size, 3.4816890703380645, 1e-14);
  EXPECT_NEAR(found.slope, 4.4816890703380645, 1e-14);
}

}  // namespace tally::softpick_test
