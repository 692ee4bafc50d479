// Means of what tasks draw, beside those that their laws have.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "tasks/task.hpp"

namespace tally::testing {

// The mean of one number of each sequence.
class Mean {
 public:
  void add(double value) {
    ++n_;
    sum_ += value;
    squares_ += value * value;
  }
  double mean() const { return sum_ / n_; }
  // `expected` follows from the law: within four standard errors of these very numbers.
  void expect_exact(double expected, std::string_view what) const {
    const double variance = squares_ / n_ - mean() * mean();
    EXPECT_NEAR(mean(), expected, 4 * std::sqrt(std::max(variance, 0.0) / n_) + 1e-12) << what;
  }
  // `expected` was measured with another generator; `tolerance` is that of 20,000 sequences.
  void expect_near(double expected, double tolerance, std::string_view what) const {
    EXPECT_NEAR(mean(), expected, tolerance * std::sqrt(20'000 / n_)) << what;
  }

 private:
  double n_ = 0, sum_ = 0, squares_ = 0;
};

// Calls use(example) for the first `count` sequences of a split.
template <class Use>
void for_each_example(const Task& task, std::string_view split, std::int64_t count, Use&& use) {
  for (std::int64_t index = 0; index < count; ++index) use(task.example(split, index));
}

inline double scored_positions(const Example& example) {
  double count = 0;
  for (const std::uint8_t scored : example.score_mask) count += scored;
  return count;
}

}  // namespace tally::testing
