// Small statistics, compared with independently computed values.
#include "tasks/print/statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace tally::statistics_test {

// Wilson's bounds solve |p - hits/n| = z sqrt(p (1-p) / n). The test checks this equation, not the closed form.
TEST(Statistics, WilsonBoundsSolveTheirEquation) {
  constexpr double z = 1.959963984540054;
  for (const auto& [hits, n] : {std::pair{1, 10}, {5, 10}, {9, 10}, {1, 1000}, {26'000, 26'400}}) {
    const Interval interval = wilson_interval(hits, n);
    const double share = static_cast<double>(hits) / n;
    EXPECT_LT(interval.low, share);
    EXPECT_GT(interval.high, share);
    for (const double p : {interval.low, interval.high}) {
      EXPECT_NEAR(std::abs(p - share), z * std::sqrt(p * (1 - p) / n), 1e-14) << hits << " of " << n;
    }
  }
  EXPECT_EQ(wilson_interval(0, 100).low, 0);
  EXPECT_NEAR(wilson_interval(0, 100).high, z * z / (100 + z * z), 1e-15);
  EXPECT_EQ(wilson_interval(100, 100).high, 1);
  EXPECT_EQ(wilson_interval(0, 0).low, 0);
  EXPECT_EQ(wilson_interval(0, 0).high, 1);
}

TEST(Statistics, ExponentialsThatDoNotFitAreTakenByTheirLogarithms) {
  const ExponentialMean small = mean_of_exponentials({std::log(20.0), std::log(24.0), std::log(28.0)});
  EXPECT_NEAR(small.value.mean, 24, 1e-12);
  EXPECT_NEAR(small.value.deviation, 4, 1e-12);
  EXPECT_NEAR(small.log_mean, std::log(24.0), 1e-14);
  EXPECT_NEAR(small.log_deviation, std::log(4.0), 1e-14);
  EXPECT_EQ(exponential_text(small.log_mean) + " " + exponential_text(small.log_deviation, 2), "24 4");
  // The same times e^1000.
  const ExponentialMean large =
      mean_of_exponentials({std::log(20.0) + 1000, std::log(24.0) + 1000, std::log(28.0) + 1000});
  EXPECT_TRUE(std::isinf(large.value.mean));
  EXPECT_NEAR(large.log_mean, 1000 + std::log(24.0), 1e-12);
  EXPECT_NEAR(large.log_deviation, 1000 + std::log(4.0), 1e-12);
  EXPECT_EQ(mean_of_exponentials({1000, 1000}).value.deviation, 0);
  EXPECT_EQ(exponential_text(std::log(24.65)), "24.65");
  EXPECT_EQ(exponential_text(812.25), "e^812.2");
  EXPECT_EQ(exponential_text(-1e6), "0");
  EXPECT_EQ(exponential_text(std::nan("")), "nan");
  EXPECT_EQ(mean_of_exponentials({}).value.n, 0);
}

TEST(Statistics, DeviationIsThatOfASample) {
  RunningMean one_by_one;
  for (const double value : {2, 4, 4, 4, 5, 5, 7, 9}) one_by_one.add(value);
  for (const MeanDeviation& found : {mean_deviation({2, 4, 4, 4, 5, 5, 7, 9}), one_by_one.result()}) {
    EXPECT_NEAR(found.mean, 5, 1e-15);
    EXPECT_NEAR(found.deviation, std::sqrt(32.0 / 7), 1e-15);
    EXPECT_EQ(found.n, 8);
  }
  EXPECT_EQ(mean_deviation({3}).deviation, 0);
  EXPECT_EQ(mean_deviation({0.003, 0.003, 0.003}).deviation, 0);
}

// The two-sided 5% points of Student's distribution, from printed tables (Fisher and Yates).
TEST(Statistics, StudentsDistributionHasItsPrintedPoints) {
  for (const auto& [freedom, point] :
       {std::pair{1, 12.706}, {2, 4.303}, {3, 3.182}, {4, 2.776}, {5, 2.571}, {10, 2.228}, {30, 2.042}, {120, 1.980}}) {
    EXPECT_NEAR(student_p(point, freedom), 0.05, 1e-4) << freedom;
    EXPECT_NEAR(student_p(-point, freedom), 0.05, 1e-4) << freedom;
  }
  EXPECT_NEAR(student_p(9.925, 2), 0.01, 1e-5);
  EXPECT_NEAR(student_p(1.959964, 1e6), 0.05, 1e-5);
  EXPECT_EQ(student_p(0, 3), 1);
  EXPECT_LT(student_p(1000, 1000), 1e-9);
}

// Student's sleep data. R prints for t.test(extra ~ group, data = sleep): t = -1.8608, df = 17.776, p-value = 0.07939.
TEST(Statistics, WelchsTestIsThatOfR) {
  const MeanDeviation first = mean_deviation({0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0});
  const MeanDeviation second = mean_deviation({1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4});
  EXPECT_NEAR(welch_p(first, second), 0.07939, 5e-6);
  EXPECT_NEAR(welch_p(second, first), 0.07939, 5e-6);
}

TEST(Statistics, WelchsTestAtItsLimits) {
  EXPECT_EQ(welch_p({1, 0, 1}, {2, 0.1, 3}), 1) << "one value has no spread";
  EXPECT_EQ(welch_p({1, 0, 3}, {2, 0, 3}), 0);
  EXPECT_EQ(welch_p({1, 0, 3}, {1, 0, 3}), 1);
  // An exact number leaves the degrees of freedom of the other mean: two, so 4.303 standard errors.
  const double error = 0.6 / std::sqrt(3);
  EXPECT_NEAR(welch_p({1, 0.6, 3}, {1 + 4.303 * error, 0, 3}), 0.05, 1e-4);
}

TEST(Statistics, SmallSharesAreNotWrittenAsNone) {
  EXPECT_EQ(percent_text(std::nan("")), "nan%");
  EXPECT_EQ(percent_text(0), "0%");
  EXPECT_EQ(percent_text(1.0 / 1'062'000), "0.000094%");
  EXPECT_EQ(percent_text(0.000015), "0.002%");
  EXPECT_EQ(percent_text(0.5), "50%");
  EXPECT_EQ(interval_text(0, 1'037'700), "0-0.00037%");
}

}  // namespace tally::statistics_test
