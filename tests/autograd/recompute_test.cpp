// Results that are recomputed instead of saved.
#include "autograd/recompute.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/device/allocator.hpp"
#include "tests/autograd/leaf.hpp"
#include "tests/error_of.hpp"

namespace tally {
namespace recompute_test {

using testing::gradient_of;
using testing::leaf;

// Two results with an intermediate in common.
std::vector<Tensor> two(const std::vector<Tensor>& x) {
  const Tensor common = exp(x[0]) * x[1];
  return {sin(common), common * x[0]};
}

TEST(Recomputed, HasTheResultsAndGradientsOfTheFunction) {
  const Tensor a = leaf({0.5, -1}), b = leaf({2, 3}), a2 = leaf({0.5, -1}), b2 = leaf({2, 3});
  const std::vector<Tensor> plain = two({a * 1.0, b}), again = recomputed("two", {a2 * 1.0, b2}, two);
  backward(sum(plain[0] * 2.0 + plain[1]));
  backward(sum(again[0] * 2.0 + again[1]));
  for (std::size_t n = 0; n < 2; ++n) EXPECT_EQ(again[n].to_vector<double>(), plain[n].to_vector<double>());
  EXPECT_EQ(gradient_of(a2), gradient_of(a));
  EXPECT_EQ(gradient_of(b2), gradient_of(b));
}

TEST(Recomputed, TakesResultsThatNothingUses) {
  const Tensor a = leaf({0.5, -1}), b = leaf({2, 3}), a2 = leaf({0.5, -1}), b2 = leaf({2, 3});
  backward(sum(two({a, b})[1]));
  backward(sum(recomputed("two", {a2, b2}, two)[1]));
  EXPECT_EQ(gradient_of(a2), gradient_of(a));
  EXPECT_EQ(gradient_of(b2), gradient_of(b));
}

TEST(Recomputed, GivesNothingToInputsThatTakeNothing) {
  const Tensor a = leaf({0.5, -1}), b = Tensor::from(std::vector<double>{2, 3}, {2});
  backward(sum(recomputed("two", {a, b}, two)[0]));
  EXPECT_TRUE(gradient(a).defined());
  EXPECT_FALSE(requires_grad(b));
  // An input that no result depends on has a gradient of zeros.
  const Tensor c = leaf({1, 1}), d = leaf({1, 1});
  backward(sum(recomputed("one", {c, d}, [](const std::vector<Tensor>& x) { return std::vector{square(x[0])}; })[0]));
  EXPECT_EQ(gradient_of(c), std::vector<double>({2, 2}));
  EXPECT_EQ(gradient_of(d), std::vector<double>({0, 0}));
}

TEST(Recomputed, IsTheFunctionWhereNothingTakesGradients) {
  int calls = 0;
  const auto counted = [&](const std::vector<Tensor>& x) {
    ++calls;
    return two(x);
  };
  const Tensor a = leaf({0.5, -1}), b = leaf({2, 3});
  {
    const NoGrad none;
    EXPECT_FALSE(requires_grad(recomputed("two", {a, b}, counted)[0]));
  }
  EXPECT_EQ(calls, 1);
  backward(sum(recomputed("two", {a, b}, counted)[0]));
  EXPECT_EQ(calls, 3);
}

TEST(Recomputed, KeepsNoIntermediates) {
  const std::int64_t count = 1 << 16;
  Tensor x = Tensor::full({count}, 0.5, DType::f64);
  set_requires_grad(x);
  const auto chain = [](const std::vector<Tensor>& in) {
    Tensor y = in[0];
    for (int n = 0; n < 8; ++n) y = sin(y);
    return std::vector{y};
  };
  const std::size_t before = memory_counters().live_bytes;
  const auto kept_by = [&](const std::vector<Tensor>& result) {
    return (memory_counters().live_bytes - before) / (static_cast<std::size_t>(result[0].numel()) * sizeof(double));
  };
  EXPECT_EQ(kept_by(recomputed("chain", {x}, chain)), 1U);
  EXPECT_GE(kept_by(chain({x})), 8U);
}

// Sums along the columns in steps of two, a result of half the columns, and an unused one.
std::vector<Tensor> in_steps(const std::vector<Tensor>& x) {
  const Tensor product = x[0] * exp(x[1]);
  const std::int64_t columns = product.size(1), even = columns / 2 * 2;
  Tensor pairs = sum(reshape(slice(product, 1, 0, even), {product.size(0), even / 2, 2}), {2});
  if (even < columns) pairs = concat({pairs, slice(product, 1, even, columns)}, 1);
  return {product, pairs, x[1] * 2.0};
}

TEST(Recomputed, InPartsIsTheSameAsWhole) {
  const auto numbers = [](std::int64_t count, double scale) {
    std::vector<double> values;
    for (std::int64_t n = 0; n < count; ++n) values.push_back(scale * static_cast<double>(n % 7 - 3));
    return values;
  };
  const std::int64_t columns = 11;  // parts of 4, the last one of 7
  std::vector<std::vector<double>> results;
  std::vector<std::size_t> calls;
  for (const std::int64_t most : {1000, 8}) {
    Tensor a = Tensor::from(numbers(2 * columns, 0.3), {2, columns}),
           b = Tensor::from(numbers(columns, -0.2), {1, columns});
    set_requires_grad(a);
    set_requires_grad(b);
    std::size_t count = 0;
    const auto counted = [&](const std::vector<Tensor>& x) {
      ++count;
      return in_steps(x);
    };
    // The first input is no leaf and is not dense.
    const Tensor turned = transpose(transpose(a, 0, 1) * 1.5, 0, 1);
    const std::vector<Tensor> y = recomputed("steps", {turned, b}, {.axis = 1, .step = 2, .numbers = most}, counted);
    EXPECT_EQ(y[0].shape(), Shape({2, columns}));
    EXPECT_EQ(y[1].shape(), Shape({2, 6}));
    backward(sum(square(y[0])) + sum(y[1] * y[1]));
    for (const Tensor& x : {y[0], y[1], y[2], gradient(a), gradient(b)}) results.push_back(x.to_vector<double>());
    calls.push_back(count);
  }
  for (std::size_t n = 0; n < 5; ++n) EXPECT_EQ(results[n], results[n + 5]) << n;
  EXPECT_EQ(calls, std::vector<std::size_t>({2, 4}));
  const Tensor wide = leaf({1, 2, 3}), narrow = leaf({1, 2});
  EXPECT_NE(testing::error_of([&] {
              recomputed("steps", {wide, narrow}, {.axis = 0, .step = 1}, in_steps);
            }).find("[3]"),
            std::string::npos);
}

TEST(Recomputed, RunsBackwardOnce) {
  const Tensor a = leaf({0.5, -1}), b = leaf({2, 3});
  const Tensor y = sum(recomputed("two", {a, b}, two)[0]);
  backward(y);
  EXPECT_NE(testing::error_of([&] { backward(y); }).find("compute the forward pass again"), std::string::npos);
  Tensor changed = leaf({1, 1});
  const std::vector<Tensor> results = recomputed("two", {changed, b}, two);
  changed.fill(2);
  EXPECT_NE(testing::error_of([&] { backward(sum(results[0])); }).find("[two]"), std::string::npos);
}

}  // namespace recompute_test
}  // namespace tally
