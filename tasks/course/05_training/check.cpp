// The test of exercise 5.
#include <gtest/gtest.h>

#include <tally/tally.hpp>
#include <vector>

void adam_step(std::vector<double>& w, std::vector<double>& m, std::vector<double>& v, const std::vector<double>& g,
               int n, double lr);

namespace tally {
namespace {

// The loss is sum (w - target)^2, so the gradient is 2 (w - target).
TEST(AdamStep, DoesAsTheLibrary) {
  const std::vector<double> target{1, -2, 30};
  std::vector<double> w{0, 0, 0}, m{0, 0, 0}, v{0, 0, 0};
  Tensor parameter = Tensor::zeros({3}, DType::f64);
  parameter.set_requires_grad();
  OptimizerOptions options;
  options.name = "adam";
  options.lr = 0.1;
  const auto optimizer = Optimizer::make(options, {{"w", parameter}});
  for (int n = 1; n <= 20; ++n) {
    std::vector<double> g;
    for (std::size_t i = 0; i < w.size(); ++i) g.push_back(2 * (w[i] - target[i]));
    adam_step(w, m, v, g, n, options.lr);
    sum(square(parameter - Tensor::from(target, {3}))).backward();
    optimizer->step();
  }
  const std::vector<double> expected = parameter.to_vector<double>();
  for (std::size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(w[i], expected[i], 1e-9);
}

}  // namespace
}  // namespace tally
