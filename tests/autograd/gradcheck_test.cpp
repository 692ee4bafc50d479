// The checker passes right derivatives and refuses wrong ones.
#include <gtest/gtest.h>

#include "autograd/gradcheck.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/device/kernels.hpp"
#include "core/error.hpp"

namespace tally::gradcheck_test {

Tensor input(const Shape& shape) {
  const Tensor x = Tensor::empty(shape, DType::f64);
  kernels(x.device()).random_uniform(x.view(), {1, 2, 3}, -1, 1);
  return x;
}

// x^2 with the derivative factor * x.
Tensor square_with_factor(const Tensor& x, double factor) {
  Tensor y = x.detach() * x.detach();
  record("square_with_factor", y, {x},
         [x = x.detach(), factor](const Tensor& d_y, Gradients& d) { d.set(0, d_y * x * factor); });
  return y;
}

TEST(Gradcheck, PassesARightDerivative) {
  const auto function = [](const auto& x) { return square_with_factor(x[0], 2); };
  const GradcheckResult small = gradcheck(function, {input({3, 4})});
  EXPECT_TRUE(small.ok) << small.text;
  EXPECT_TRUE(small.full);
  EXPECT_EQ(small.compared, 12 * 12);
  EXPECT_LT(small.worst, 1e-2);
  const GradcheckResult large = gradcheck(function, {input({30, 40})});
  EXPECT_TRUE(large.ok) << large.text;
  EXPECT_FALSE(large.full);
  EXPECT_EQ(large.compared, 3);
}

TEST(Gradcheck, FailsAWrongDerivative) {
  const auto function = [](const auto& x) { return square_with_factor(x[0], 2.01); };
  for (const Shape& shape : {Shape{3, 4}, Shape{30, 40}}) {
    const GradcheckResult result = gradcheck(function, {input(shape)});
    EXPECT_FALSE(result.ok);
    EXPECT_GT(result.worst, 1);
  }
}

TEST(Gradcheck, FailsAMissingDerivative) {
  const auto function = [](const auto& x) { return x[0] * x[1].detach(); };
  for (const Shape& shape : {Shape{2}, Shape{30, 40}}) {
    const GradcheckResult result = gradcheck(function, {input(shape), input(shape)});
    EXPECT_FALSE(result.ok);
    EXPECT_NE(result.text.find("input 1"), std::string::npos) << result.text;
    EXPECT_NE(result.text.find("backward gives 0"), std::string::npos) << result.text;
  }
}

TEST(Gradcheck, FailsNaN) {
  const auto function = [](const auto& x) {
    return square_with_factor(x[0], std::numeric_limits<double>::quiet_NaN());
  };
  EXPECT_FALSE(gradcheck(function, {input({2})}).ok);
}

TEST(Gradcheck, NamesThePlace) {
  // Only the derivative of one element is wrong.
  const auto function = [](const auto& x) {
    return concat({slice(x[0], 1, 0, 2), square_with_factor(slice(x[0], 1, 2, 3), 3)}, 1);
  };
  const GradcheckResult result = gradcheck(function, {Tensor::full({2, 3}, 0.5, DType::f64)});
  EXPECT_FALSE(result.ok);
  EXPECT_NE(result.text.find("input 0 [2, 3] at [0, 2], output at [0, 2]: backward gives 1.5"), std::string::npos)
      << result.text;
}

TEST(Gradcheck, ConstantsHaveNoDerivative) {
  EXPECT_TRUE(gradcheck([](const auto& x) { return Tensor::zeros(x[0].shape(), DType::f64); }, {input({2})}).ok);
  EXPECT_FALSE(gradcheck([](const auto& x) { return x[0].detach(); }, {input({2})}).ok);
}

TEST(Gradcheck, IntegersArePassedOn) {
  const Tensor ids = Tensor::from(std::vector<std::int32_t>{1, 0, 1}, {3});
  const GradcheckResult result = gradcheck([](const auto& x) { return embedding(x[0], x[1]); }, {input({2, 2}), ids});
  EXPECT_TRUE(result.ok) << result.text;
  EXPECT_EQ(result.compared, 4 * 6);
}

TEST(Gradcheck, LeavesItsInputsAlone) {
  const Tensor x = input({3});
  const std::vector<double> before = x.to_vector<double>();
  gradcheck([](const auto& inputs) { return exp(inputs[0]); }, {x});
  EXPECT_EQ(x.to_vector<double>(), before);
  EXPECT_FALSE(requires_grad(x));
}

TEST(Gradcheck, ErrorsOfTheFunctionPassThrough) {
  EXPECT_THROW(gradcheck([](const auto& x) { return matmul(x[0], x[0]); }, {input({2, 3})}), Error);
}

}  // namespace tally::gradcheck_test
