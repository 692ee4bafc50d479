// Recording and backward, independent of the operation.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/device/allocator.hpp"
#include "tests/autograd/counted_kernels.hpp"
#include "tests/autograd/leaf.hpp"
#include "tests/error_of.hpp"

namespace tally::engine_test {

using testing::error_of;
using testing::gradient_of;
using testing::leaf;

void expect_error(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
}

using Values = std::vector<double>;

TEST(Backward, IsAMemberOfTensors) {
  const Tensor x = Tensor::from({2, 3}, DType::f64).set_requires_grad();
  EXPECT_TRUE(x.requires_grad());
  EXPECT_FALSE(x.grad().defined());
  const Tensor loss = mse(x, Tensor::from({1, 5}, DType::f64));
  EXPECT_EQ(loss.item(), 2.5);
  loss.backward();  // x - target
  EXPECT_EQ(x.grad().to_vector<double>(), Values({1, -2}));
  x.clear_grad();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(x.detach().requires_grad());
  EXPECT_EQ(error_of([&] { x.detach().grad(); }), "[gradient] this tensor takes no gradient");
  EXPECT_EQ(error_of([&] {
              mse(x, Tensor::ones({1, 2}, DType::f64));
            }),
            "[mse] prediction and target must have one shape: got [2] and [1, 2]");
}

TEST(CrossEntropy, WithoutAMaskCountsAllPositions) {
  const Tensor logits = Tensor::randn({2, 3, 4}, 1, DType::f64),
               targets = Tensor::from({{0, 1, 2}, {3, 0, 1}}, DType::i32);
  EXPECT_EQ(cross_entropy(logits, targets).item(),
            cross_entropy(logits, targets, Tensor::ones({2, 3}, DType::boolean)).item());
  EXPECT_EQ(error_of([&] {
              cross_entropy(logits, Tensor::from({0, 1}, DType::i32));
            }),
            "[cross_entropy] logits [2, 3, 4] need targets and mask [2, 3]: got [2] and [2]");
}

TEST(Backward, AddsUpOverSeveralUses) {
  const Tensor x = leaf({2, 3});
  backward(sum(x * x + x * 4.0));  // 2x + 4
  EXPECT_EQ(gradient_of(x), Values({8, 10}));
}

TEST(Backward, AddsUpOverManyUsesOfOneResult) {
  const Tensor x = leaf({2, 3});
  const Tensor y = x * 1.0;
  Tensor total = y;
  for (int i = 0; i < 4; ++i) total = total + y;
  backward(sum(total));
  EXPECT_EQ(gradient_of(x), Values({5, 5}));
}

// Gradients are integers, so sums are exact in any order. Layers must add only to the sum of gradients: the residual
// passes the gradient of the whole to both of its inputs.
TEST(Backward, LayersThatReadTheSameAddToItsGradient) {
  const auto numbers = [](std::int64_t rows, std::int64_t columns, int from) {
    std::vector<double> values(static_cast<std::size_t>(rows * columns));
    for (std::size_t n = 0; n < values.size(); ++n)
      values[n] = static_cast<double>((static_cast<int>(n) * 7 + from) % 5);
    return Tensor::from(values, {rows, columns});
  };
  Tensor x = numbers(6, 4, 1);
  set_requires_grad(x);
  const Tensor factors = numbers(6, 4, 2);
  // The layers read one tensor, or each a tensor of its own.
  const auto gradients = [&](bool one, int layers) {
    clear_gradient(x);
    const Tensor all = x * 2.0;
    const auto read = [&] { return one ? all : x * 2.0; };
    const Tensor residual = read();
    Tensor y = residual;
    for (int n = 0; n < layers; ++n) y = y + linear(read(), numbers(4, 4, n), {});
    const std::uint64_t before = testing::kernel_calls("binary");
    backward(sum((y + residual) * factors));
    return std::pair(gradient_of(x), testing::kernel_calls("binary") - before);
  };
  const auto [of_one, calls_of_one] = gradients(true, 3);
  EXPECT_EQ(of_one, gradients(false, 3).first);
  EXPECT_EQ(gradients(true, 5).second, calls_of_one);  // from the second of them on no sum of its own
}

TEST(Backward, AddsToTheGradientThatIsThere) {
  const Tensor x = leaf({2, 3});
  backward(sum(square(x)));
  backward(sum(x * 3.0));
  EXPECT_EQ(gradient_of(x), Values({7, 9}));
  clear_gradient(x);
  EXPECT_FALSE(gradient(x).defined());
  backward(sum(x));
  EXPECT_EQ(gradient_of(x), Values({1, 1}));
}

// Each leaf is reported once, with its final gradient. The leaf that was used last comes first: one that is used again
// further below has to wait.
TEST(Backward, TellsOfLeavesWhoseGradientIsComplete) {
  const Tensor first = leaf({2, 3}), second = leaf({5, 7}), both = leaf({1, 2}), unused = leaf({4, 4});
  const Tensor x = first * both;  // twice an input of one operation in the next line
  const Tensor y = second * x + both * both;
  std::vector<const AutogradData*> told;
  std::vector<Values> then;
  backward(sum(y), [&](AutogradData& data) {
    told.push_back(&data);
    then.push_back(data.gradient.to_vector<double>());
  });
  const std::vector<Tensor> expected{second, first, both};
  ASSERT_EQ(told.size(), 3);
  EXPECT_EQ(told.front(), second.autograd().get());
  for (const Tensor& tensor : expected) {
    const auto place = std::find(told.begin(), told.end(), tensor.autograd().get());
    ASSERT_NE(place, told.end());
    EXPECT_EQ(then[static_cast<std::size_t>(place - told.begin())], gradient_of(tensor));
  }
  EXPECT_EQ(gradient_of(both), Values({5 * 2 + 2 * 1, 7 * 3 + 2 * 2}));
  EXPECT_FALSE(gradient(unused).defined());
}

// The callback may take the gradient, even of a leaf that is the loss.
TEST(Backward, GivesGradientsAway) {
  const Tensor x = leaf({2, 3});
  for (int pass = 0; pass < 2; ++pass) {
    Tensor taken;
    backward(sum(square(x)), [&](AutogradData& data) { taken = std::exchange(data.gradient, {}); });
    EXPECT_EQ(taken.to_vector<double>(), Values({4, 6}));
    EXPECT_FALSE(gradient(x).defined());
  }
  const Tensor loss = leaf({1});
  int told = 0;
  backward(loss, [&](AutogradData&) { ++told; });
  EXPECT_EQ(told, 1);
}

TEST(Backward, DiamondsOfUnequalDepth) {
  const Tensor x = leaf({2});
  const Tensor y = square(x);             // 4
  const Tensor deep = square(square(y));  // y^4
  backward(sum(deep * y + y));            // y^5 + y: (5 y^4 + 1) 2x
  EXPECT_EQ(gradient_of(x), Values({(5 * 256 + 1) * 4}));
}

TEST(Backward, GradientsOfLeavesShareNothing) {
  const Tensor a = leaf({1}), b = leaf({2});
  backward(sum(a + b));  // one d_y reaches both
  gradient(a).fill(7);
  EXPECT_EQ(gradient_of(b), Values({1}));
  const Tensor x = leaf({1, 2});
  const Tensor d_y = Tensor::from(Values{3, 4}, {2});
  backward(reshape(x, {2}), d_y);
  gradient(x).fill(0);
  EXPECT_EQ(d_y.to_vector<double>(), Values({3, 4}));
}

// A tensor that an operation made for one leaf only becomes its gradient without a copy.
TEST(Backward, AddsNoCopyOfALeafsGradient) {
  constexpr std::int64_t count = 1 << 16;
  const Tensor x = leaf(Values(count, 0.5)), y = exp(x), d_y = Tensor::full({count}, 1, DType::f64, Device{});
  const std::uint64_t before = memory_counters().live_bytes;
  reset_peak_memory();
  backward(y, d_y);
  EXPECT_LT(memory_counters().peak_bytes - before, 3 * count * sizeof(double) / 2);
}

TEST(Backward, TakesTheGradientOfAnyShape) {
  const Tensor x = leaf({2, 3});
  backward(square(x), Tensor::from(Values{10, 100}, {2}));
  EXPECT_EQ(gradient_of(x), Values({40, 600}));
}

TEST(Backward, ALossThatIsALeaf) {
  const Tensor x = leaf({5});
  backward(x);
  EXPECT_EQ(gradient_of(x), Values({1}));
}

TEST(Backward, LeavesWhatItDoesNotReachAlone) {
  const Tensor x = leaf({2}), unused = leaf({3});
  const Tensor constant = Tensor::from(Values{4}, {1});
  backward(sum(x * constant));
  EXPECT_EQ(gradient_of(x), Values({4}));
  EXPECT_FALSE(gradient(unused).defined());
  EXPECT_FALSE(requires_grad(constant));
}

TEST(Backward, DetachedValuesAreConstants) {
  const Tensor x = leaf({3});
  backward(sum(x * x.detach()));
  EXPECT_EQ(gradient_of(x), Values({3}));
}

// Neither backward nor the destruction of a graph may use the stack in proportion to its length.
TEST(Backward, LongChains) {
  constexpr int length = 200000;
  const std::int64_t nodes = live_nodes();
  const std::uint64_t blocks = memory_counters().live_blocks;
  {
    const Tensor x = leaf({1});
    Tensor y = x;
    for (int i = 0; i < length; ++i) y = y + 1.0;
    EXPECT_EQ(live_nodes() - nodes, length);
    backward(sum(y));
    EXPECT_EQ(gradient_of(x), Values({1}));
    y = x;
    for (int i = 0; i < length; ++i) y = y * y;
    y = Tensor();  // without a backward pass
  }
  EXPECT_EQ(live_nodes(), nodes);
  EXPECT_EQ(memory_counters().live_blocks, blocks);
}

TEST(Backward, FreesWhatItKeptAsItGoes) {
  const Tensor x = leaf(Values(1000, 0.5));
  const Tensor y = exp(exp(exp(x)));  // each keeps its result
  const Tensor loss = sum(y);
  const std::uint64_t before = memory_counters().live_blocks;
  backward(loss);
  EXPECT_LT(memory_counters().live_blocks, before);
}

TEST(Backward, ASecondPassThroughAGraphIsAnError) {
  const Tensor x = leaf({2});
  const Tensor y = sum(square(x));
  backward(y);
  expect_error(error_of([&] { backward(y); }), {"[sum]", "backward ran through this operation before"});
  EXPECT_EQ(gradient_of(x), Values({4}));
}

TEST(Backward, SecondPassThroughASharedPartNamesIt) {
  const Tensor x = leaf({2});
  const Tensor shared = square(x);
  backward(sum(shared));
  const Tensor again = sum(exp(shared));
  expect_error(error_of([&] { backward(again); }), {"[square]"});
}

TEST(Backward, ALossOfManyElementsNeedsItsGradient) {
  const Tensor x = leaf({2, 3});
  expect_error(error_of([&] { backward(square(x)); }), {"[backward]", "[2]", "d_loss"});
  expect_error(error_of([&] { backward(square(x), Tensor::zeros({3}, DType::f64)); }), {"[backward]", "[3]", "[2]"});
  expect_error(error_of([&] { backward(square(x), Tensor::zeros({2}, DType::f32)); }), {"[backward]", "f32", "f64"});
}

TEST(Backward, ALossWithoutGradientsIsAnError) {
  expect_error(error_of([] { backward(Tensor::scalar(1)); }), {"[backward]", "does not depend"});
}

TEST(Backward, AResultChangedThroughAViewIsAnError) {
  const Tensor x = leaf({1, 2, 3});
  const Tensor y = exp(x);
  const Tensor loss = sum(y);
  y.detached_slice(0, 0, 1).fill(0);
  expect_error(error_of([&] { backward(loss); }), {"[exp]", "changed in place"});
}

TEST(Backward, AGradientThatIsAddedToIsChangedInPlace) {
  const Tensor x = leaf({2}), y = leaf({5});
  backward(sum(x * x));
  const Tensor kept = sum(y * gradient(x));  // its derivative needs the gradient of x as it is now
  backward(sum(x * x));                      // adds to that
  expect_error(error_of([&] { backward(kept); }), {"changed in place"});
}

TEST(Backward, FirstDerivativesOnly) {
  const Tensor x = leaf({2});
  backward(sum(x * x * x));
  EXPECT_FALSE(requires_grad(gradient(x)));
  const Tensor penalty = sum(square(gradient(x)));
  EXPECT_FALSE(requires_grad(penalty));
  EXPECT_NE(error_of([&] { backward(penalty); }), "");
  Tensor d_y = Tensor::from(Values{1}, {1});
  set_requires_grad(d_y);
  expect_error(error_of([&] { backward(square(x), d_y); }), {"[backward]", "first derivatives only"});
  expect_error(error_of([&] { set_gradient(x, d_y); }), {"[gradient]", "first derivatives only"});
}

// A pass that ends early leaves gradients waiting at results that it has not reached; they must not enter the next
// pass.
TEST(Backward, AfterAnErrorTheNextPassIsRight) {
  const Tensor x = leaf({2});
  const Tensor waiting = x * 2.0;
  const Tensor changed = exp(waiting);
  const Tensor loss = sum(waiting + changed);
  changed.detach().fill(0);
  expect_error(error_of([&] { backward(loss); }), {"[exp]", "changed in place"});
  backward(sum(waiting * 3.0));
  EXPECT_EQ(gradient_of(x), Values({6}));
}

// The partial sums of the failed pass are dropped with its gradients: the next sums are fresh tensors again.
TEST(Backward, AfterAnErrorSumsDoNotReachTheirNeighbours) {
  const Tensor x = leaf({2}), other = leaf({3});
  const Tensor waiting = x * 2.0, beside = other * 2.0;
  const Tensor changed = exp(waiting);
  const Tensor loss = sum((waiting + waiting) + changed);
  changed.detach().fill(0);
  expect_error(error_of([&] { backward(loss); }), {"[exp]", "changed in place"});
  const Tensor tripled = waiting * 3.0;
  backward(sum((waiting + beside) + tripled));
  EXPECT_EQ(gradient_of(x), Values({8}));
  EXPECT_EQ(gradient_of(other), Values({2}));
}

TEST(Recording, OperationsWithoutADerivativeRefuseGradients) {
  const Tensor x = leaf({2, 3});
  expect_error(error_of([&] { argmax(x); }), {"[argmax]", "no derivative"});
  expect_error(error_of([&] { cast(x, DType::i32); }), {"[cast]", "no derivative"});
  const Tensor table = reshape(x, {1, 2});
  const Tensor angles = Tensor::from(Values{1}, {1, 1});
  expect_error(error_of([&] { rotate_pairs(table, slice(table, 1, 0, 1), angles, false); }),
               {"[rotate_pairs", "no derivative"});
  const NoGrad no_grad;
  EXPECT_EQ(argmax(x).item(), 1);
  EXPECT_EQ(cast(x, DType::i32).to_vector<std::int32_t>(), (std::vector<std::int32_t>{2, 3}));
}

TEST(Recording, NoGradIsScoped) {
  const Tensor x = leaf({2});
  EXPECT_TRUE(grad_enabled());
  {
    const NoGrad outer;
    {
      const NoGrad inner;
      EXPECT_FALSE(grad_enabled());
    }
    EXPECT_FALSE(grad_enabled());
    EXPECT_FALSE(requires_grad(square(x)));
  }
  EXPECT_TRUE(grad_enabled());
  EXPECT_TRUE(requires_grad(square(x)));
}

TEST(Recording, NoGradBelongsToItsThread) {
  const NoGrad here;
  bool elsewhere = false;
  std::thread([&] { elsewhere = grad_enabled(); }).join();
  EXPECT_TRUE(elsewhere);
}

TEST(Recording, LeavesAndResults) {
  Tensor x = leaf({2});
  Tensor y = square(x);
  EXPECT_TRUE(requires_grad(x));
  EXPECT_TRUE(requires_grad(y));
  EXPECT_FALSE(requires_grad(Tensor()));
  set_requires_grad(x, false);
  EXPECT_FALSE(requires_grad(square(x)));
  expect_error(error_of([&] { set_requires_grad(y); }), {"[requires_grad]", "not a leaf"});
  expect_error(error_of([&] { gradient(y); }), {"[gradient]", "leaves", "square"});
  expect_error(error_of([&] { gradient(Tensor::scalar(1)); }), {"[gradient]", "takes no gradient"});
  expect_error(error_of([&] { set_gradient(leaf({1}), Tensor::zeros({2}, DType::f64)); }),
               {"[gradient]", "[2]", "[1]"});
}

TEST(Recording, OnlyFloatingTensorsTakeGradients) {
  for (const DType dtype : {DType::i32, DType::i64, DType::boolean}) {
    Tensor x = Tensor::zeros({2}, dtype);
    expect_error(error_of([&] { set_requires_grad(x); }), {"[requires_grad]", std::string(name_of(dtype))});
  }
  Tensor none;
  expect_error(error_of([&] { set_requires_grad(none); }), {"[requires_grad]", "undefined"});
}

TEST(Recording, OnlyWhatBackwardNeedsIsKept) {
  const std::uint64_t blocks = memory_counters().live_blocks;
  const Tensor x = leaf(Values(100, 2));
  {
    // The product's gradient by x needs only the factor: x + 0 is freed as soon as it is used.
    const Tensor y = multiply(Tensor::from(Values(100, 3), {100}), (x + 0.0) + 0.0);
    EXPECT_EQ(memory_counters().live_blocks, blocks + 3);  // x, the factor, y
  }
  EXPECT_EQ(memory_counters().live_blocks, blocks + 1);
}

}  // namespace tally::engine_test
