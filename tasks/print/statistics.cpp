#include "tasks/print/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <numeric>

namespace tally {

Interval wilson_interval(std::int64_t hits, std::int64_t n) {
  if (n <= 0) return {0, 1};
  constexpr double z = 1.959963984540054;  // two-sided 95%
  const double count = static_cast<double>(n);
  const double p = static_cast<double>(hits) / count;
  const double centre = p + z * z / (2 * count);
  const double spread = z * std::sqrt(p * (1 - p) / count + z * z / (4 * count * count));
  const double scale = 1 + z * z / count;
  // At the ends, rounding would give 1e-19 instead of the exact bound.
  return {hits == 0 ? 0.0 : std::max(0.0, (centre - spread) / scale),
          hits == n ? 1.0 : std::min(1.0, (centre + spread) / scale)};
}

MeanDeviation mean_deviation(const std::vector<double>& values) {
  MeanDeviation result;
  result.n = static_cast<std::int64_t>(values.size());
  if (values.empty()) return result;
  // Relative to the first value, so that rounding gives equal values no deviation.
  double beyond = 0;
  for (const double value : values) beyond += value - values.front();
  beyond /= static_cast<double>(values.size());
  result.mean = values.front() + beyond;
  // Infinite values have an infinite mean.
  if (std::isnan(result.mean)) result.mean = std::accumulate(values.begin(), values.end(), 0.0);
  if (values.size() < 2) return result;
  double squares = 0;
  for (const double value : values) squares += (value - values.front() - beyond) * (value - values.front() - beyond);
  result.deviation = std::sqrt(squares / static_cast<double>(values.size() - 1));
  return result;
}

double student_p(double t, double freedom) {
  // With t = sqrt(freedom) tan(x), the density of t becomes a power of cos(x), integrated here by Simpson's rule.
  // Beyond t = 50, p is below 0.013 for any whole number of degrees of freedom.
  constexpr int intervals = 400;
  const double end = std::atan(std::min(std::abs(t), 50.0) / std::sqrt(freedom)), width = end / intervals;
  double sum = 0;
  for (int n = 0; n <= intervals; ++n) {
    const int weight = n == 0 || n == intervals ? 1 : n % 2 == 1 ? 4 : 2;
    sum += weight * std::pow(std::cos(n * width), freedom - 1);
  }
  const double log_constant = std::lgamma((freedom + 1) / 2) - std::lgamma(freedom / 2);
  return std::clamp(1 - 2 * std::exp(log_constant) / std::sqrt(std::numbers::pi) * sum * width / 3, 0.0, 1.0);
}

double welch_p(const MeanDeviation& a, const MeanDeviation& b) {
  if (a.n < 2 || b.n < 2 || a.mean == b.mean) return 1;
  const auto square = [](double x) { return x * x; };
  const double a_n = static_cast<double>(a.n), b_n = static_cast<double>(b.n);
  const double a_error = square(a.deviation) / a_n, b_error = square(b.deviation) / b_n, error = a_error + b_error;
  if (error == 0) return 0;
  const double freedom = square(error) / (square(a_error) / (a_n - 1) + square(b_error) / (b_n - 1));
  return student_p((a.mean - b.mean) / std::sqrt(error), freedom);
}

std::string exponential_text(double logarithm, int digits) {
  const double value = std::exp(logarithm);
  return std::isinf(value) && std::isfinite(logarithm) ? "e^" + short_number(logarithm, digits)
                                                       : short_number(value, digits);
}

ExponentialMean mean_of_exponentials(const std::vector<double>& logarithms) {
  if (logarithms.empty()) return {};
  const double largest = *std::max_element(logarithms.begin(), logarithms.end());
  std::vector<double> scaled;  // e^(x - largest)
  for (const double logarithm : logarithms) scaled.push_back(std::exp(logarithm - largest));
  const MeanDeviation mean = mean_deviation(scaled);
  const double log_mean = largest + std::log(mean.mean), log_deviation = largest + std::log(mean.deviation);
  return {{std::exp(log_mean), std::exp(log_deviation), mean.n}, log_mean, log_deviation};
}

MeanDeviation RunningMean::result() const {
  return {mean_, n_ > 1 ? std::sqrt(squares_ / static_cast<double>(n_ - 1)) : 0, n_};
}

std::string with_commas(std::int64_t value) {
  std::string digits = std::to_string(value);
  const std::ptrdiff_t first = value < 0 ? 1 : 0;
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > first; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

std::string plural(std::int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string short_number(double value, int digits) {
  if (std::isnan(value)) return "nan";  // never "-nan"
  char buffer[48];
  std::snprintf(buffer, sizeof buffer, "%.*g", digits, value);
  return buffer;
}

std::string percent_number(double fraction) {
  char buffer[32];
  const double percent = 100 * fraction;
  if (percent == 0) return "0";
  if (!std::isfinite(percent)) return short_number(percent);
  // Below 0.001, enough decimals for two digits: one wrong answer in a million is not "0".
  const int decimals = percent >= 99.95     ? 0
                       : percent >= 9.95    ? 1
                       : percent >= 0.095   ? 2
                       : percent >= 0.00095 ? 3
                                            : 1 - static_cast<int>(std::floor(std::log10(percent)));
  std::snprintf(buffer, sizeof buffer, "%.*f", decimals, percent);
  std::string text = buffer;
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

std::string percent_text(double fraction) { return percent_number(fraction) + "%"; }

std::string interval_text(std::int64_t hits, std::int64_t n) {
  const Interval interval = wilson_interval(hits, n);
  return percent_number(interval.low) + "-" + percent_text(interval.high);
}

std::string rate_text(std::int64_t hits, std::int64_t n, std::string_view what) {
  return with_commas(hits) + " of " + with_commas(n) + " " + std::string(what) + ", 95% interval " +
         interval_text(hits, n);
}

}  // namespace tally
