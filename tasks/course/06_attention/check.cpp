// The test of exercise 6.
#include <gtest/gtest.h>

#include <cmath>
#include <tally/tally.hpp>
#include <vector>

tally::Tensor window_weights(const tally::Tensor& scores, std::int64_t width);

namespace tally {
namespace {

constexpr std::int64_t length = 6;

std::vector<double> weights_of(std::int64_t width) {
  return window_weights(Tensor::randn({1, length, length}, /*seed=*/1, DType::f64), width).to_vector<double>();
}

TEST(WindowWeights, AreZeroOutsideTheWindow) {
  const std::vector<double> weights = weights_of(3);
  for (std::int64_t i = 0; i < length; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < length; ++j) {
      const double weight = weights[static_cast<std::size_t>(i * length + j)];
      const bool is_seen = j <= i && j > i - 3;
      EXPECT_EQ(weight > 0, is_seen) << "query " << i << ", key " << j;
      sum += weight;
    }
    EXPECT_NEAR(sum, 1, 1e-14);
  }
}

TEST(WindowWeights, HaveTheRatiosOfTheScores) {
  const std::vector<double> scores = Tensor::randn({1, length, length}, 1, DType::f64).to_vector<double>();
  const std::vector<double> weights = weights_of(2);
  const std::size_t last = length * length - 1;
  EXPECT_NEAR(weights[last] / weights[last - 1], std::exp(scores[last] - scores[last - 1]), 1e-12);
}

}  // namespace
}  // namespace tally
