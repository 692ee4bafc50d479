// Accuracy of core/math/math.hpp against libm in long double, and its limits.
#include "core/math/math.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tally::kernel_math_test {

// The largest relative error over evenly spaced arguments in [low, high].
template <class T, class F, class R>
double largest_error(F&& function, R&& reference, double low, double high) {
  constexpr int count = 200'000;
  double largest = 0.0;
  for (int i = 0; i <= count; ++i) {
    const T x = static_cast<T>(low + (high - low) * i / count);
    const long double exact = reference(static_cast<long double>(x));
    const long double error = std::abs((static_cast<long double>(function(x)) - exact) / exact);
    largest = std::max(largest, static_cast<double>(error));
  }
  return largest;
}

template <class T>
class MathKernel : public ::testing::Test {
 protected:
  // In units of the last place of 1.
  template <class F, class R>
  static void expect_error_below(double units, F&& function, R&& reference, double low, double high) {
    EXPECT_LT((largest_error<T>(function, reference, low, high)), units * std::numeric_limits<T>::epsilon());
  }
  static constexpr T infinity = std::numeric_limits<T>::infinity();
  static constexpr T nan = std::numeric_limits<T>::quiet_NaN();
};

using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(MathKernel, Types);

TYPED_TEST(MathKernel, Exp) {
  const auto function = [](TypeParam x) { return math::exp(x); };
  const auto reference = [](long double x) { return std::exp(x); };
  this->expect_error_below(1, function, reference, -1, 1);
  this->expect_error_below(1, function, reference, -86.6, 88.7);
  EXPECT_EQ(math::exp(TypeParam{0}), TypeParam{1});
  EXPECT_EQ(math::exp(TypeParam{1000}), this->infinity);
  EXPECT_EQ(math::exp(TypeParam{-1000}), TypeParam{0});
  EXPECT_EQ(math::exp(this->infinity), this->infinity);
  EXPECT_EQ(math::exp(-this->infinity), TypeParam{0});
  EXPECT_TRUE(std::isnan(math::exp(this->nan)));
  EXPECT_TRUE(std::isnan(math::exp(-this->nan)));
}

TYPED_TEST(MathKernel, ExpReachesTheLargestNumber) {
  const TypeParam highest = std::log(std::numeric_limits<TypeParam>::max());
  EXPECT_TRUE(std::isfinite(math::exp(std::nextafter(highest, TypeParam{0}))));
  EXPECT_EQ(math::exp(highest + TypeParam{0.125}), this->infinity);
}

TYPED_TEST(MathKernel, ExpGoesToZeroWhereNumbersEnd) {
  const TypeParam lowest = std::log(std::numeric_limits<TypeParam>::min());
  EXPECT_GT(math::exp(lowest + TypeParam{0.75}), TypeParam{0});
  EXPECT_EQ(math::exp(lowest - TypeParam{0.75}), TypeParam{0});
}

TYPED_TEST(MathKernel, Log) {
  using Limits = std::numeric_limits<TypeParam>;
  const auto function = [](TypeParam x) { return math::log(x); };
  const auto reference = [](long double x) { return std::log(x); };
  this->expect_error_below(2, function, reference, 1e-3, 0.999);
  this->expect_error_below(2, function, reference, 1.001, 3);
  this->expect_error_below(2, function, reference, 3, 1e30);
  for (const TypeParam x : {Limits::min(), Limits::max(), Limits::denorm_min(), Limits::min() / 8, TypeParam{0.5},
                            std::nextafter(TypeParam{1}, TypeParam{2}), std::nextafter(TypeParam{1}, TypeParam{0})}) {
    EXPECT_NEAR(math::log(x) / std::log(x), 1, 2 * Limits::epsilon()) << x;
  }
  EXPECT_EQ(math::log(TypeParam{1}), TypeParam{0});
  EXPECT_EQ(math::log(TypeParam{0}), -this->infinity);
  EXPECT_EQ(math::log(this->infinity), this->infinity);
  EXPECT_TRUE(std::isnan(math::log(TypeParam{-1})));
  EXPECT_TRUE(std::isnan(math::log(this->nan)));
}

// Absolute errors, in units of the last place of 1. Whole turns may be subtracted from large arguments with rounding,
// because such an argument has a larger rounding error itself.
TYPED_TEST(MathKernel, SinAndCos) {
  using Limits = std::numeric_limits<TypeParam>;
  const auto expect_near = [](TypeParam x, double units) {
    const auto exact = static_cast<long double>(x);
    const double allowed = units * static_cast<double>(Limits::epsilon());
    EXPECT_NEAR(static_cast<double>(math::sin(x)), static_cast<double>(std::sin(exact)), allowed) << x;
    EXPECT_NEAR(static_cast<double>(math::cos(x)), static_cast<double>(std::cos(exact)), allowed) << x;
  };
  for (int i = -50'000; i <= 50'000; ++i) {
    expect_near(static_cast<TypeParam>(i * 2e-4), 1);
    expect_near(static_cast<TypeParam>(i * 0.1284), 2);
    expect_near(static_cast<TypeParam>(i * 1.284), std::max(2.0, std::abs(i * 1.284) * 3e-4));
  }
  // Small arguments relatively.
  const auto sine = [](TypeParam x) { return math::sin(x); };
  this->expect_error_below(
      1, sine, [](long double x) { return std::sin(x); }, 1e-6, 0.7);
  EXPECT_EQ(math::sin(TypeParam{0}), TypeParam{0});
  EXPECT_EQ(math::cos(TypeParam{0}), TypeParam{1});
  for (const TypeParam x : {static_cast<TypeParam>(1e30), static_cast<TypeParam>(-3e20), Limits::max()}) {
    EXPECT_LE(std::abs(math::sin(x)), TypeParam{1});
    EXPECT_LE(std::abs(math::cos(x)), TypeParam{1});
  }
  EXPECT_TRUE(std::isnan(math::sin(this->infinity)));
  EXPECT_TRUE(std::isnan(math::cos(-this->infinity)));
  EXPECT_TRUE(std::isnan(math::sin(this->nan)));
  EXPECT_TRUE(std::isnan(math::cos(this->nan)));
}

TYPED_TEST(MathKernel, Sigmoid) {
  const auto function = [](TypeParam x) { return math::sigmoid(x); };
  const auto reference = [](long double x) { return 1 / (1 + std::exp(-x)); };
  this->expect_error_below(2, function, reference, -80, 40);
  this->expect_error_below(2, function, reference, -2, 2);
  EXPECT_EQ(math::sigmoid(TypeParam{0}), TypeParam{0.5});
  EXPECT_EQ(math::sigmoid(TypeParam{-1000}), TypeParam{0});
  EXPECT_EQ(math::sigmoid(TypeParam{1000}), TypeParam{1});
  EXPECT_TRUE(std::isnan(math::sigmoid(this->nan)));
}

TYPED_TEST(MathKernel, Tanh) {
  const auto function = [](TypeParam x) { return math::tanh(x); };
  const auto reference = [](long double x) { return std::tanh(x); };
  this->expect_error_below(3, function, reference, -20, 19);  // no step hits 0, where relative errors mean nothing
  this->expect_error_below(3, function, reference, 1e-6, 1e-2);
  EXPECT_EQ(math::tanh(TypeParam{0}), TypeParam{0});
  EXPECT_EQ(math::tanh(this->infinity), TypeParam{1});
  EXPECT_EQ(math::tanh(-this->infinity), TypeParam{-1});
  EXPECT_TRUE(std::isnan(math::tanh(this->nan)));
}

TYPED_TEST(MathKernel, Softplus) {
  const auto function = [](TypeParam x) { return math::softplus(x); };
  const auto reference = [](long double x) { return std::log1p(std::exp(x)); };
  this->expect_error_below(3, function, reference, -80, 80);
  this->expect_error_below(3, function, reference, -2, 2);
  EXPECT_EQ(math::softplus(TypeParam{1000}), TypeParam{1000});
  EXPECT_EQ(math::softplus(TypeParam{-1000}), TypeParam{0});
  EXPECT_EQ(math::softplus(this->infinity), this->infinity);
  EXPECT_TRUE(std::isnan(math::softplus(this->nan)));
}

TYPED_TEST(MathKernel, NormalDistribution) {
  const auto cdf = [](TypeParam x) { return math::normal_cdf(x); };
  const auto exact_cdf = [](long double x) { return std::erfc(-x / std::sqrt(2.0L)) / 2; };
  this->expect_error_below(4, cdf, exact_cdf, -1, 8);
  // The rounded square in the exponent costs x^2 / 2 units.
  this->expect_error_below(20, cdf, exact_cdf, -5, 0);
  const auto density = [](TypeParam x) { return math::normal_density(x); };
  const auto exact_density = [](long double x) { return std::exp(-x * x / 2) / std::sqrt(8 * std::atan(1.0L)); };
  this->expect_error_below(2, density, exact_density, -1, 1);
  this->expect_error_below(20, density, exact_density, -5, 5);
  EXPECT_EQ(math::normal_cdf(-this->infinity), TypeParam{0});
  EXPECT_EQ(math::normal_cdf(this->infinity), TypeParam{1});
  EXPECT_TRUE(std::isnan(math::normal_cdf(this->nan)));
}

}  // namespace tally::kernel_math_test
