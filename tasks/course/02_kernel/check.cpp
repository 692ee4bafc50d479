// The test of exercise 2.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

std::vector<double> online_softmax(const std::vector<double>& x);

namespace tally {
namespace {

TEST(OnlineSoftmax, HasTheRatiosOfExponentials) {
  for (const std::vector<double>& x : {std::vector<double>{1, 2, 3, 4}, {4, 3, 2, 1}, {-5, 0, 7, -2, 7}, {3}}) {
    const std::vector<double> y = online_softmax(x);
    ASSERT_EQ(y.size(), x.size());
    double sum = 0;
    for (std::size_t j = 0; j < x.size(); ++j) {
      EXPECT_NEAR(y[j] / y[0], std::exp(x[j] - x[0]), 1e-12 * std::exp(x[j] - x[0]));
      sum += y[j];
    }
    EXPECT_NEAR(sum, 1, 1e-14);
  }
}

TEST(OnlineSoftmax, DoesNotOverflow) {
  const std::vector<double> y = online_softmax({-2000, 1000, 1001});
  ASSERT_EQ(y.size(), 3U);
  EXPECT_NEAR(y[1], 1 / (1 + std::exp(1.0)), 1e-14);
}

}  // namespace
}  // namespace tally
