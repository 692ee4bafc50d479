// The test of exercise 8.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "autograd/ops.hpp"

std::vector<double> rotated(const std::vector<double>& x, double position, double base);

namespace tally {
namespace {

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t n = 0; n < a.size(); ++n) sum += a[n] * b.at(n);
  return sum;
}

TEST(Rotated, TurnsAPairByTheAngle) {
  const std::vector<double> y = rotated({1, 0}, std::numbers::pi / 2, 100);
  ASSERT_EQ(y.size(), 2U);
  EXPECT_NEAR(y[0], 0, 1e-12);
  EXPECT_NEAR(y[1], 1, 1e-12);
}

TEST(Rotated, GivesAProductThatDependsOnTheDistanceOnly) {
  const std::vector<double> q{0.3, -1, 2, 0.7, 0.1, -0.4}, k{1, 0.2, -0.5, 0.9, -2, 0.6};
  const double near = dot(rotated(q, 7, 100), rotated(k, 4, 100));
  EXPECT_NEAR(dot(rotated(q, 1007, 100), rotated(k, 1004, 100)), near, 1e-9);
  EXPECT_GT(std::abs(dot(rotated(q, 7, 100), rotated(k, 5, 100)) - near), 0.01);
}

TEST(Rotated, AgreesWithTheLibrary) {
  const std::vector<double> x{0.3, -1, 2, 0.7};
  const Tensor angle = Tensor::from<double>({3, 3 / std::sqrt(50.0)}, {1, 2});
  const std::vector<double> wanted = turn_pairs(Tensor::from(x, {1, 4}), angle, false).to_vector<double>();
  const std::vector<double> y = rotated(x, 3, 50);
  for (std::size_t n = 0; n < wanted.size(); ++n) EXPECT_NEAR(y.at(n), wanted[n], 1e-12);
}

}  // namespace
}  // namespace tally
