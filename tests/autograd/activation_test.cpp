// A layer and its activation as one operation: in f32 and f64 what the two are, and where products round to bf16 what
// lies between is written rounded (core/precision.md).
#include "autograd/activation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/backend.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "core/rounded.hpp"
#include "core/workspace.hpp"
#include "tests/devices.hpp"

namespace tally {
namespace {

constexpr UnaryOp activations[] = {UnaryOp::relu, UnaryOp::gelu, UnaryOp::gelu_tanh, UnaryOp::silu};

class ActivatedLinear : public testing::OnDevice {
 protected:
  void TearDown() override {
    set_product_precision(ProductPrecision::f32);
    OnDevice::TearDown();
  }
};
TALLY_ON_EVERY_DEVICE(ActivatedLinear);

Tensor drawn(const std::string& name, const Shape& shape, DType dtype) {
  const Tensor x = Tensor::empty(shape, DType::f64, default_device());
  kernels(x.device()).random_normal(x.view(), RandomStream{1, stream_of(name), 0}, 0, 1);
  return x.to(DType::f32).to(dtype);
}

// Of down(op(up(x))) the result and the gradients of all it is made of.
struct Outcome {
  std::vector<std::vector<double>> numbers;
};
Outcome compute(UnaryOp op, bool as_one, DType dtype, bool with_bias = true) {
  constexpr std::int64_t in = 24, hidden = 40;
  std::vector<Tensor> leaves = {drawn("x", {3, 11, in}, dtype), drawn("up", {hidden, in}, dtype),
                                drawn("bias", {hidden}, dtype), drawn("down", {in, hidden}, dtype)};
  for (Tensor& leaf : leaves) set_requires_grad(leaf);
  const Tensor x = leaves[0] * 0.5, bias = with_bias ? leaves[2] : Tensor();
  const Tensor middle = as_one ? activated_linear(op, x, leaves[1], bias) : unary(op, linear(x, leaves[1], bias));
  const Tensor y = linear(middle, leaves[3]);
  EXPECT_EQ(y.dtype(), dtype);
  backward(y, drawn("d_y", y.shape(), dtype));
  Outcome outcome{{y.to(DType::f64).to_vector<double>()}};
  for (const Tensor& leaf : leaves) {
    const Tensor d = gradient(leaf);
    outcome.numbers.push_back(d.defined() ? d.to(DType::f64).to_vector<double>() : std::vector<double>{});
  }
  return outcome;
}

TEST_P(ActivatedLinear, IsTheTwoOperationsWhereNothingIsRounded) {
  for (const UnaryOp op : activations) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      for (const bool with_bias : {true, false}) {
        EXPECT_EQ(compute(op, true, dtype, with_bias).numbers, compute(op, false, dtype, with_bias).numbers);
      }
    }
  }
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double square = 0;
  for (std::size_t n = 0; n < a.size(); ++n) square += (a[n] - b[n]) * (a[n] - b[n]);
  return std::sqrt(square);
}

// As near to f64 as the two operations, whose activation reads and writes f32, times the two roundings more.
TEST_P(ActivatedLinear, RoundsAsMuchAsItSays) {
  for (const UnaryOp op : activations) {
    const Outcome exact = compute(op, false, DType::f64);
    set_product_precision(ProductPrecision::bf16);
    const Outcome as_one = compute(op, true, DType::f32), as_two = compute(op, false, DType::f32);
    set_product_precision(ProductPrecision::f32);
    for (std::size_t n = 0; n < exact.numbers.size(); ++n) {
      const double error = distance(as_one.numbers[n], exact.numbers[n]);
      EXPECT_LE(error, 2 * distance(as_two.numbers[n], exact.numbers[n])) << static_cast<int>(op) << " " << n;
      EXPECT_GT(error, 0) << static_cast<int>(op) << " " << n;
    }
  }
}

TEST_P(ActivatedLinear, GivesWhatTheNextProductReads) {
  set_product_precision(ProductPrecision::bf16);
  const Tensor x = drawn("x", {7, 24}, DType::f32), weight = drawn("up", {40, 24}, DType::f32);
  const Tensor y = activated_linear(UnaryOp::gelu, x, weight, {});
  EXPECT_EQ(y.dtype(), DType::bf16);
  const Tensor hidden = linear(x, weight).to(DType::bf16).to(DType::f32);
  EXPECT_EQ(y.to(DType::f32).to_vector<float>(), gelu(hidden).to(DType::bf16).to(DType::f32).to_vector<float>());
  set_product_precision(ProductPrecision::f32);
  EXPECT_THROW(linear(y, drawn("down", {24, 40}, DType::f32)), Error);
}

// What it came from may be read again, each time with a gradient of its own; and the precision may have changed.
TEST_P(ActivatedLinear, HasGradientsWhoeverReadsItAndHoweverProductsRoundThen) {
  const Tensor x = drawn("x", {7, 24}, DType::f32) * 1.0;
  const auto gradients = [&](int readers, ProductPrecision later) {
    Tensor up = drawn("up", {40, 24}, DType::f32), bias = drawn("one", {1}, DType::f32);
    set_requires_grad(up);
    set_product_precision(ProductPrecision::bf16);
    const Tensor h = activated_linear(UnaryOp::gelu, x, up, bias.broadcast_view("bias", {40}));
    Tensor y = linear(h, drawn("down", {24, 40}, DType::f32));
    for (int n = 1; n < readers; ++n) y = y + linear(h, drawn("down", {24, 40}, DType::f32));
    set_product_precision(later);
    backward(y * (1.0 / readers), drawn("d_y", y.shape(), DType::f32));
    set_product_precision(ProductPrecision::f32);
    return gradient(up).to(DType::f64).to_vector<double>();
  };
  const std::vector<double> expected = gradients(1, ProductPrecision::bf16), none(expected.size());
  const double close = 0.02 * distance(expected, none);
  EXPECT_LE(distance(gradients(2, ProductPrecision::bf16), expected), close);
  EXPECT_LE(distance(gradients(3, ProductPrecision::bf16), expected), close);
  EXPECT_LE(distance(gradients(1, ProductPrecision::f32), expected), close);
}

// Kernels in bf16, against themselves on the same numbers in f32.
TEST_P(ActivatedLinear, KernelsComputeInF32) {
  const Shape shape{70, 50};
  const Kernels& on = kernels(default_device());
  const Tensor x = drawn("x", shape, DType::f32).to(DType::bf16), d_y = drawn("d_y", shape, DType::f32).to(DType::bf16);
  const Tensor wide_x = x.to(DType::f32), wide_d_y = d_y.to(DType::f32);
  const auto bits = [](const Tensor& rounded) { return rounded.to(DType::f32).to_vector<float>(); };
  for (const UnaryOp op : activations) {
    const Tensor y = Tensor::empty(shape, DType::bf16, x.device()), d_x = y.clone();
    const Tensor wide_y = Tensor::empty(shape, DType::f32, x.device()), wide_d_x = wide_y.clone();
    on.unary(op, 0, y.view(), x.view());
    on.unary(op, 0, wide_y.view(), wide_x.view());
    EXPECT_EQ(bits(y), bits(wide_y.to(DType::bf16)));
    const bool from_output = unary_needs_output(op);
    on.unary_backward(op, 0, d_x.view(), d_y.view(), from_output ? View{} : x.view(), from_output ? y.view() : View{});
    on.unary_backward(op, 0, wide_d_x.view(), wide_d_y.view(), from_output ? View{} : wide_x.view(),
                      from_output ? y.to(DType::f32).view() : View{});
    EXPECT_EQ(bits(d_x), bits(wide_d_x.to(DType::bf16)));
  }
  for (const Shape& kept : {Shape{1, 50}, Shape{70, 1}, Shape{1, 1}}) {
    const Tensor sum = Tensor::empty(kept, DType::f32, x.device()), expected = sum.clone();
    for (const auto& [to, from] : {std::pair{sum, x}, std::pair{expected, wide_x}}) {
      const Workspace workspace(on.reduce_workspace(to.view(), from.view()), x.device());
      on.reduce(ReduceOp::sum, to.view(), from.view(), workspace.data());
    }
    EXPECT_EQ(sum.to_vector<float>(), expected.to_vector<float>());
  }
}

TEST_P(ActivatedLinear, KeepsHalf) {
  constexpr std::int64_t rows = 64, width = 32, hidden = 128;
  Tensor up = drawn("up", {hidden, width}, DType::f32), x = drawn("x", {rows, width}, DType::f32);
  set_requires_grad(up);
  set_requires_grad(x);
  for (const bool rounds : {true, false}) {
    set_product_precision(rounds ? ProductPrecision::bf16 : ProductPrecision::f32);
    const Tensor given = x * 0.5;
    const std::size_t before = memory_counters(default_device()).live_bytes;
    const Tensor y = activated_linear(UnaryOp::gelu, given, up, {});
    const std::size_t bytes = memory_counters(default_device()).live_bytes - before;
    // What op was taken of, the result, and in bf16 the rounded x beside the one that is held here.
    EXPECT_EQ(bytes, static_cast<std::size_t>(rounds ? 2 * (2 * rows * hidden + rows * width) : 4 * 2 * rows * hidden));
    backward(sum(linear(y, drawn("down", {width, hidden}, DType::f32))));
  }
}

}  // namespace
}  // namespace tally
