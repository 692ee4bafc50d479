// The test of exercise 3.
#include <gtest/gtest.h>

#include <cmath>

struct Dual {
  double value;
  double slope;
};
Dual product(Dual a, Dual b);
Dual quotient(Dual a, Dual b);
Dual hyperbolic_tangent(Dual a);

namespace {

// f(x) = x * tanh(x / 3) / (x * x)
Dual f(Dual x) { return quotient(product(x, hyperbolic_tangent(quotient(x, {3, 0}))), product(x, x)); }
double f(double x) { return x * std::tanh(x / 3) / (x * x); }

TEST(DualNumbers, HaveTheValue) {
  for (const double x : {0.5, -2.0, 4.0}) EXPECT_NEAR(f(Dual{x, 1}).value, f(x), 1e-14);
}

TEST(DualNumbers, HaveTheDerivative) {
  for (const double x : {0.5, -2.0, 4.0}) {
    const double step = 1e-5;
    EXPECT_NEAR(f(Dual{x, 1}).slope, (f(x + step) - f(x - step)) / (2 * step), 1e-9) << "at " << x;
  }
}

TEST(DualNumbers, DoNotChangeWithOtherVariables) { EXPECT_EQ(product({2, 0}, {3, 0}).slope, 0); }

}  // namespace
