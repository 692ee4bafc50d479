// Learning rates of single schedules; their values are held to the reference in optimizer_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/error.hpp"
#include "nn/optimizer.hpp"

namespace tally::schedule_test {

// The rate of the flip-flop paper: lr * min(n/50, (10001-n)/9951).
TEST(Schedule, LinearIsThatOfThePaper) {
  OptimizerOptions options;
  options.lr = 3e-4;
  options.schedule = "linear";
  options.warmup = 50;
  for (const std::int64_t n : {1, 49, 50, 51, 5000, 9999, 10000}) {
    const double expected = 3e-4 * std::min(static_cast<double>(n) / 50, static_cast<double>(10001 - n) / 9951);
    EXPECT_NEAR(learning_rate(options, n, 10000), expected, 1e-18);
  }
  EXPECT_GT(learning_rate(options, 10000, 10000), 0);
  EXPECT_EQ(learning_rate(options, 10, 20), 3e-4 * 10 / 50);  // shorter than its warm-up
  EXPECT_THROW(learning_rate(options, 0, 20), Error);
  EXPECT_THROW(learning_rate(options, 21, 20), Error);
}

// A run that is continued for more steps keeps the past of these; of the others it has another one.
TEST(Schedule, ConstantInverseRootAndStableStepsDoNotSeeTheEnd) {
  OptimizerOptions options;
  options.warmup = 3;
  options.lr_floor = 0.1;
  const auto same_until = [&](const std::string& schedule) {
    options.schedule = schedule;
    std::int64_t n = 1;
    while (n <= 20 && learning_rate(options, n, 20) == learning_rate(options, n, 40)) ++n;
    return n - 1;
  };
  EXPECT_EQ(same_until("constant"), 20);
  EXPECT_EQ(same_until("inverse-root"), 20);
  EXPECT_EQ(same_until("wsd"), 18);  // a tenth is for the cooldown
  EXPECT_EQ(same_until("linear"), 3);
  EXPECT_EQ(same_until("cosine"), 3);
  options.cooldown = 0.25;
  EXPECT_EQ(same_until("wsd"), 15);
  EXPECT_EQ(same_until("inverse-root"), 15);
  options.schedule = "wsd";
  for (std::int64_t n = 3; n <= 15; ++n) EXPECT_EQ(learning_rate(options, n, 20), options.lr);
}

}  // namespace tally::schedule_test
