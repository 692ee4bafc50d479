// Gradients are tensors too: a change of a gradient that backward saved is an error.
#include <gtest/gtest.h>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "tests/error_of.hpp"

namespace tally::versions_test {

Tensor leaf(const std::vector<double>& values) {
  Tensor x = Tensor::from(values, {static_cast<std::int64_t>(values.size())});
  set_requires_grad(x);
  return x;
}

TEST(Versions, AGradientThatIsAddedToIsChangedInPlace) {
  const Tensor x = leaf({2}), y = leaf({5});
  backward(sum(x * x));
  const Tensor before = gradient(x);
  const Tensor kept = sum(y * before);  // its derivative needs the gradient of x as it is now
  backward(sum(x * x));                 // adds to that
  const std::string refused = testing::error_of([&] { backward(kept); });
  EXPECT_NE(refused.find("changed in place"), std::string::npos) << refused;
}

}  // namespace tally::versions_test
