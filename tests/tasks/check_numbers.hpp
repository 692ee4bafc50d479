// Compares sample means of the tasks' data with the means of their distributions.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "tasks/data/task.hpp"

namespace tally::testing {

// The mean of a per-sequence number, or of all answers of all sequences.
class Mean {
 public:
  void add(double value) { add(value, 1); }
  // Adds the sum over `of` answers of a sequence, so that the mean is over answers.
  void add(double sum, double of) {
    ++n_;
    sum_ += sum;
    of_ += of;
    squares_ += sum * sum;
    products_ += sum * of;
    of_squares_ += of * of;
  }
  double mean() const { return sum_ / of_; }
  // `expected` follows from the distribution: within four standard errors of this sample.
  void expect_exact(double expected, std::string_view what) const {
    EXPECT_NEAR(mean(), expected, 4 * std::sqrt(variance() / n_) + 1e-12) << what;
  }
  // `expected` was measured with another generator: within four standard errors of the difference. `tolerance` is for
  // 20,000 of our sequences and gives the precision of `expected`.
  void expect_near(double expected, double tolerance, std::string_view what) const {
    const double theirs = std::max(0.0, tolerance * tolerance / 16 - variance() / 20'000);
    EXPECT_NEAR(mean(), expected, 4 * std::sqrt(theirs + variance() / n_)) << what;
  }

 private:
  // n times the squared standard error of the mean; for answers, of a ratio of sums.
  double variance() const {
    const double residuals = squares_ - 2 * mean() * products_ + mean() * mean() * of_squares_;
    return std::max(0.0, n_ * residuals / (of_ * of_));
  }

  double n_ = 0, sum_ = 0, of_ = 0, squares_ = 0, products_ = 0, of_squares_ = 0;
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
