// Small statistics for reports.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tally {

struct Interval {
  double low, high;
};

// 95% interval of a proportion, `hits` of `n`, by Wilson's score; [0, 1] for n = 0.
Interval wilson_interval(std::int64_t hits, std::int64_t n);

struct MeanDeviation {
  double mean = 0, deviation = 0;  // sample deviation (n-1); 0 for one value
  std::int64_t n = 0;
};
MeanDeviation mean_deviation(const std::vector<double>& values);

// Welch's t test: the two-sided p-value of a difference between two means, from 0 to 1. The variances may differ. A
// deviation of 0 is exact. The p-value is 1 if a mean comes from fewer than two values, because one value has no
// spread.
double welch_p(const MeanDeviation& a, const MeanDeviation& b);
// The same for a mean and its standard error with these degrees of freedom: Student's t.
double student_p(double t, double freedom);

// The level of all tests. Two means that are equal in truth differ in 5% of cases.
inline constexpr double test_level = 0.05;

// Mean and standard deviation of e^x over values x, such as perplexities of losses. Also as logarithms, since e^x need
// not fit a double; it is infinite then.
struct ExponentialMean {
  MeanDeviation value;
  double log_mean = 0, log_deviation = 0;
};
ExponentialMean mean_of_exponentials(const std::vector<double>& logarithms);
// "24.65" for e^logarithm; "e^812.3" if it does not fit a double.
std::string exponential_text(double logarithm, int digits = 4);

// Mean and standard deviation of values that arrive one by one and are not stored.
class RunningMean {
 public:
  void add(double value) {
    const double from_mean = value - mean_;
    mean_ += from_mean / static_cast<double>(++n_);
    squares_ += from_mean * (value - mean_);
  }
  MeanDeviation result() const;

 private:
  double mean_ = 0, squares_ = 0;  // of differences from the mean
  std::int64_t n_ = 0;
};

// "0.03125", "24.65": at most `digits` significant digits, without trailing zeros.
std::string short_number(double value, int digits = 4);
// "1 thread", "3 threads".
std::string plural(std::int64_t count, std::string_view noun);
// "26,400".
std::string with_commas(std::int64_t value);
// "12.3", "0.015": percent with at most three significant digits, without trailing zeros.
std::string percent_number(double fraction);
// "12.3%".
std::string percent_text(double fraction);
// "0-0.015%": Wilson's interval.
std::string interval_text(std::int64_t hits, std::int64_t n);
// "0 of 26,400 reads, 95% interval 0-0.015%".
std::string rate_text(std::int64_t hits, std::int64_t n, std::string_view what);

}  // namespace tally
