// Points where a derivative jumps, and other values that the table of operations keeps away from: the rule that ops.hpp
// gives for them, by numbers written out.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "tests/autograd/leaf.hpp"
#include "tests/devices.hpp"

namespace tally::kinks_test {

using Values = std::vector<double>;

constexpr double infinity = std::numeric_limits<double>::infinity();

class Kinks : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Kinks);

using testing::gradient_of;
using testing::leaf;

Values values_of(const Tensor& x) { return x.to_vector<double>(); }

TEST_P(Kinks, ReluAndAbsHaveNoGradientAtZero) {
  for (const UnaryOp op : {UnaryOp::relu, UnaryOp::absolute}) {
    const Tensor x = leaf({0, -0.0});
    backward(sum(unary(op, x)));
    EXPECT_EQ(gradient_of(x), Values({0, 0}));
  }
}

TEST_P(Kinks, LeakyReluHasItsSlopeAtZeroAndRefusesOthers) {
  for (const double slope : {0.0, 0.25}) {
    const Tensor x = leaf({0, -0.0, -8, infinity});
    EXPECT_EQ(values_of(leaky_relu(x, slope)), Values({0, 0, -8 * slope, infinity}));
    backward(sum(leaky_relu(x, slope)));
    EXPECT_EQ(gradient_of(x), Values({slope, slope, slope, 1}));
  }
  EXPECT_TRUE(std::isnan(values_of(leaky_relu(leaf({std::nan("")}), 0.25))[0]));
  EXPECT_THROW(leaky_relu(leaf({1}), -0.25), Error);
}

TEST_P(Kinks, MaximumAndMinimumOfEqualsGoToTheFirst) {
  for (const auto function : {maximum, minimum}) {
    const Tensor a = leaf({1, 2}), b = leaf({1, 2});
    backward(sum(function(a, b)));
    EXPECT_EQ(gradient_of(a), Values({1, 1}));
    EXPECT_EQ(gradient_of(b), Values({0, 0}));
  }
}

TEST_P(Kinks, MaxOfTiesGoesToTheFirstPlace) {
  const Tensor rows = leaf({1, 3, 3, 2, 2, 2}, {2, 3});
  backward(sum(max(rows, 1)));
  EXPECT_EQ(gradient_of(rows), Values({0, 1, 0, 1, 0, 0}));
  const Tensor columns = leaf({1, 3, 1, 2}, {2, 2});
  backward(sum(max(columns, 0)));
  EXPECT_EQ(gradient_of(columns), Values({1, 1, 0, 0}));
}

// NaN is found at any place, also if a row is divided into parts.
TEST_P(Kinks, MaxKeepsNaN) {
  for (const std::int64_t width : {3, 100}) {
    for (const std::int64_t index : {std::int64_t{0}, width / 2, width - 1}) {
      Values values(static_cast<std::size_t>(2 * width), 1.0);
      values[static_cast<std::size_t>(index)] = std::nan("");
      const Tensor x = leaf(values, {2, width});
      const NoGrad only_values;
      for (const Tensor& y : {max(x, 1), max(transpose(x, 0, 1).to_dense(), 0)}) {
        EXPECT_TRUE(std::isnan(values_of(y)[0])) << index << " of " << width;
        EXPECT_EQ(values_of(y)[1], 1);
      }
      EXPECT_EQ(argmax(x).to(Device{}).to_vector<std::int64_t>()[0], index) << "of " << width;
    }
  }
}

// encodings.md, section 3: at an integer the value is the entry itself, and the derivative that from the right.
TEST_P(Kinks, InterpolateAtIntegers) {
  const Tensor table = leaf({10, 20, 40}, {1, 3});
  const Tensor position = leaf({0, 1, 2, 7}, {1, 4});
  const Tensor y = interpolate(table, position);
  EXPECT_EQ(values_of(y), Values({10, 20, 40, 40}));
  backward(sum(y));
  EXPECT_EQ(gradient_of(position), Values({10, 20, 0, 0}));
  EXPECT_EQ(gradient_of(table), Values({1, 1, 2}));
}

TEST_P(Kinks, InterpolatePassesNaNOn) {
  const Tensor table = leaf({10, 20}, {1, 2});
  const Tensor position = leaf({std::nan(""), 0.5}, {1, 2});
  const Tensor y = interpolate(table, position);
  EXPECT_TRUE(std::isnan(values_of(y)[0]));
  EXPECT_EQ(values_of(y)[1], 15);
}

TEST_P(Kinks, SoftmaxOfLargeAndOfMaskedEntries) {
  const Tensor x = leaf({800, 800, -infinity, -800}, {1, 4});
  const Tensor y = softmax(x);
  EXPECT_EQ(values_of(y), Values({0.5, 0.5, 0, 0}));
  backward(sum(y * Tensor::from(Values{1, 3, 5, 7}, {4}, default_device())));
  EXPECT_EQ(gradient_of(x), Values({-0.5, 0.5, 0, 0}));
}

TEST_P(Kinks, SoftplusAndSigmoidDoNotOverflow) {
  const Tensor x = leaf({-800, 800});
  EXPECT_EQ(values_of(softplus(x)), Values({0, 800}));
  EXPECT_EQ(values_of(sigmoid(x)), Values({0, 1}));
  backward(sum(softplus(x)));
  EXPECT_EQ(gradient_of(x), Values({0, 1}));
}

// A masked target is not read as a class.
TEST_P(Kinks, CrossEntropyIgnoresTargetsThatDoNotCount) {
  const Tensor logits = leaf({0, 0, 5, 9}, {2, 2});
  const Tensor targets = Tensor::from(std::vector<std::int32_t>{1, -100}, {2}, default_device());
  const Tensor mask = Tensor::from(Values{1, 0}, {2}, default_device()).to(DType::boolean);
  const Tensor loss = cross_entropy(logits, targets, mask);
  EXPECT_DOUBLE_EQ(loss.item(), std::log(2));
  backward(loss);
  const Values d_logits = gradient_of(logits);
  EXPECT_DOUBLE_EQ(d_logits[0], 0.5);
  EXPECT_DOUBLE_EQ(d_logits[1], -0.5);
  EXPECT_EQ(d_logits[2], 0);
  EXPECT_EQ(d_logits[3], 0);
}

TEST_P(Kinks, CrossEntropyOfLargeLogits) {
  const Tensor logits = leaf({1000, 0, -1000, 0}, {2, 2});
  const Tensor targets = Tensor::from(std::vector<std::int32_t>{1, 1}, {2}, default_device());
  const Tensor loss = cross_entropy(logits, targets, Tensor::full({2}, 1, DType::boolean, default_device()));
  EXPECT_EQ(loss.item(), 500);
  backward(loss);
  EXPECT_EQ(gradient_of(logits), Values({0.5, -0.5, 0, 0}));
}

// A row is computed in parts, and its largest logit may be in any of them.
TEST_P(Kinks, CrossEntropyOfALargeLogitAtTheEndOfALongRow) {
  std::vector<double> values(1200, 0.0);
  values.back() = 1000;
  const Tensor logits = leaf(values, {1, 1200});
  const Tensor targets = Tensor::from(std::vector<std::int32_t>{1199}, {1}, default_device());
  const Tensor loss = cross_entropy(logits, targets, Tensor::full({1}, 1, DType::boolean, default_device()));
  EXPECT_EQ(loss.item(), 0);
  backward(loss);
  EXPECT_EQ(gradient_of(logits), Values(1200, 0.0));
}

TEST_P(Kinks, DropoutOfNothingIsTheTensorItself) {
  const Tensor x = leaf({1, 2});
  EXPECT_EQ(dropout(x, 0, {}).storage(), x.storage());
}

TEST_P(Kinks, CastGivesTheGradientInItsOwnType) {
  Tensor x = Tensor::from(std::vector<float>{1, 2}, {2}, default_device());
  set_requires_grad(x);
  backward(sum(square(cast(x, DType::f64))));
  EXPECT_EQ(gradient(x).dtype(), DType::f32);
  EXPECT_EQ(gradient(x).to_vector<float>(), (std::vector<float>{2, 4}));
}

TEST(Views, ShareTheirElements) {
  const Tensor x = Tensor::zeros({2, 3, 4});
  for (const Tensor& view : {reshape(x, {6, 4}), transpose(x, 0, 2), slice(x, 1, 1, 2), select(x, 0, 1),
                             broadcast_to(x, {5, 2, 3, 4}), unsqueeze(x, 0), contiguous(x)}) {
    EXPECT_EQ(view.storage(), x.storage());
  }
  EXPECT_NE(contiguous(transpose(x, 0, 1)).storage(), x.storage());
  EXPECT_NE(reshape(transpose(x, 0, 1), {24}).storage(), x.storage());
}

}  // namespace tally::kinks_test
