#include "autograd/finite.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "tests/error_of.hpp"

namespace tally::finite_test {

struct FiniteChecks {
  FiniteChecks() { set_finite_checks(true); }
  ~FiniteChecks() { set_finite_checks(false); }
};

Tensor leaf(const std::vector<float>& values) {
  Tensor x = Tensor::from(values, {static_cast<std::int64_t>(values.size())});
  set_requires_grad(x);
  return x;
}

TEST(Finite, SeesNumbersInBf16) {
  const Tensor x = Tensor::full({3, 5}, 1.0, DType::bf16);
  EXPECT_TRUE(all_finite(x));
  x.detached_select(0, 1).fill(std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(all_finite(x));
}

TEST(Finite, ToldForEveryType) {
  const float largest = std::numeric_limits<float>::max();
  EXPECT_TRUE(all_finite(Tensor::from(std::vector<float>{largest, -largest, 0}, {3})));
  for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const Tensor x = Tensor::from(std::vector<float>{1, value, 2, 3}, {2, 2});
    EXPECT_FALSE(all_finite(x));
    EXPECT_FALSE(all_finite(x.to(DType::f64)));
    EXPECT_FALSE(all_finite(x.detached_transpose(0, 1)));
    EXPECT_TRUE(all_finite(x.detached_slice(0, 1, 2)));  // other columns do not count
  }
  EXPECT_TRUE(all_finite(Tensor::zeros({2}, DType::i32)));
  EXPECT_TRUE(all_finite(Tensor::zeros({0})));
}

TEST(Finite, NamesTheOperationThatBegan) {
  const FiniteChecks on;
  const Tensor x = leaf({1, 0});
  const std::string message = testing::error_of([&] { sum(softmax(log(x) * 2.0)); });
  EXPECT_EQ(message.rfind("[log] the result, [2], is not finite", 0), 0u) << message;
}

TEST(Finite, NamesTheGradientThatBegan) {
  const FiniteChecks on;
  const Tensor x = leaf({1, 0});
  const Tensor y = sum(sqrt(x * 1.0));  // finite, its derivative at 0 is not
  const std::string message = testing::error_of([&] { backward(y); });
  EXPECT_EQ(message.rfind("[sqrt] the gradient of input 0, [2], is not finite", 0), 0u) << message;
}

TEST(Finite, OffAtFirst) {
  EXPECT_FALSE(finite_checks());
  EXPECT_NO_THROW(log(leaf({0})));
}

}  // namespace tally::finite_test
