// The test of exercise 4.
#include <gtest/gtest.h>

#include <cmath>
#include <tally/tally.hpp>
#include <vector>

tally::Tensor swish(const tally::Tensor& x);

namespace tally {
namespace {

Tensor points() { return Tensor::from({-3, -0.5, 0, 1, 4}, DType::f64); }

TEST(Swish, HasTheValue) {
  const std::vector<double> x = points().to_vector<double>(), y = swish(points()).to_vector<double>();
  for (std::size_t n = 0; n < x.size(); ++n) EXPECT_NEAR(y[n], x[n] / (1 + std::exp(-x[n])), 1e-14);
}

TEST(Swish, HasTheDerivative) {
  const auto result = gradcheck([](const std::vector<Tensor>& inputs) { return swish(inputs[0]); }, {points()});
  EXPECT_TRUE(result.ok) << result.text;
}

TEST(Swish, IsOneNode) {
  Tensor x = points();
  x.set_requires_grad();
  const std::int64_t before = live_nodes();
  const Tensor y = swish(x);
  EXPECT_EQ(live_nodes(), before + 1);
}

}  // namespace
}  // namespace tally
