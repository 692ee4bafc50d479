// Saved activations that matmuls read (core/precision.md): stored once, in half the memory. Kernels read them as the
// same numbers in f32.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "autograd/autocast.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/device/workspace.hpp"
#include "core/math/random.hpp"
#include "tests/devices.hpp"

namespace tally::kept_test {

class Kept : public testing::OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    set_matmul_precision(MatmulPrecision::bf16);
  }
  void TearDown() override {
    set_matmul_precision(MatmulPrecision::f32);
    OnDevice::TearDown();
  }
};
TALLY_ON_EVERY_DEVICE(Kept);

Tensor drawn(const std::string& name, const Shape& shape) {
  const Tensor x = Tensor::empty(shape, DType::f32, default_device());
  kernels(x.device()).random_normal(x.view(), RandomStream{1, stream_of(name), 0}, 0, 1);
  return x;
}
Tensor leaf(const std::string& name, const Shape& shape) {
  Tensor x = drawn(name, shape);
  set_requires_grad(x);
  return x;
}
// A result of an operation, as activations are.
Tensor activation(const std::string& name, const Shape& shape) { return leaf(name, shape) * 0.5; }

std::size_t live_bytes() { return memory_counters(default_device()).live_bytes; }

TEST_P(Kept, ElementsAreRoundedOnceForAllWhoKeepThem) {
  const Tensor x = drawn("x", {6, 5});
  const Tensor first = to_bf16_cached(x);
  const Tensor turned = to_bf16_cached(x.detached_transpose(0, 1));
  EXPECT_EQ(turned.storage(), first.storage());
  EXPECT_EQ(to_f32(turned).to_vector<float>(), to_f32(first).detached_transpose(0, 1).to_vector<float>());
  const Tensor part = to_bf16_cached(x.detached_slice(0, 2, 4));
  EXPECT_NE(part.storage(), first.storage());
  EXPECT_EQ(part.storage()->bytes(), std::size_t{2 * 5 * 2});
}

TEST_P(Kept, AChangeInPlaceIsRoundedAnew) {
  Tensor x = drawn("x", {3});
  const Tensor before = to_bf16_cached(x);
  x.fill(2.0);
  EXPECT_EQ(to_f32(to_bf16_cached(x)).to_vector<float>(), (std::vector<float>{2, 2, 2}));
  EXPECT_NE(to_f32(before).to_vector<float>(), (std::vector<float>{2, 2, 2}));
}

// A hidden layer saves the inputs of the norm, of the matmuls and of the activation, and nothing in f32.
TEST_P(Kept, AHiddenLayerTakesHalfTheMemory) {
  constexpr std::size_t rows = 64, width = 32, hidden = 128;
  const Tensor up = leaf("up", {hidden, width}), down = leaf("down", {width, hidden});
  const Tensor weight = leaf("weight", {width}), bias = leaf("bias", {width});
  const auto layer = [&](const Tensor& x) { return linear(gelu(linear(layer_norm(x, weight, bias), up)), down); };
  for (const bool halved : {true, false}) {
    set_matmul_precision(halved ? MatmulPrecision::bf16 : MatmulPrecision::f32);
    Tensor y;
    const std::size_t before = live_bytes();
    y = layer(activation("x", {rows, width}));
    const std::size_t kept = rows * (width + width + hidden + hidden) * (halved ? 2 : 4);
    const std::size_t moments = 2 * rows * sizeof(float), result = rows * width * sizeof(float);
    // On CUDA the weights, too, which are rounded once for all products of a step.
    const std::size_t weights = halved && !is_cpu(default_device()) ? 2 * 2 * width * hidden : 0;
    EXPECT_EQ(live_bytes() - before, kept + moments + result + weights) << halved;
    backward(sum(y));
  }
}

// Matmuls round their operands anyway. Saving them rounded changes no bit of the gradients.
TEST_P(Kept, GradientsOfProductsHaveTheSameBits) {
  const Tensor d_y = drawn("d_y", {3, 17, 24}), d_z = drawn("d_z", {3, 17, 9});
  // Leaves are saved in f32, results computed from them in bf16.
  const auto gradients = [&](bool of_leaves) {
    const Tensor weight = leaf("weight", {24, 40}), x = leaf("x", {3, 17, 40}), other = leaf("other", {3, 40, 9});
    const auto operand = [&](const Tensor& given) { return of_leaves ? given : given * 1.0; };
    backward(linear(operand(x), weight), d_y);
    backward(matmul(operand(x), operand(other)), d_z);
    return std::vector{gradient(weight).to_vector<float>(), gradient(x).to_vector<float>(),
                       gradient(other).to_vector<float>()};
  };
  EXPECT_EQ(gradients(false), gradients(true));
}

// Kernels that read bf16, against themselves on the same numbers in f32.
TEST_P(Kept, KernelsReadWhatIsKeptAsTheSameNumbers) {
  const Shape shape{70, 50};
  const Kernels& on = kernels(default_device());
  const Tensor d_y = drawn("d_y", shape), kept = drawn("x", shape).to(DType::bf16), same = kept.to(DType::f32);
  const auto expect_same = [&](std::string_view what,
                               const std::function<void(const Tensor& d_x, const View& x)>& run) {
    const Tensor found = Tensor::empty(shape, DType::f32, default_device()), expected = found.clone();
    run(found, kept.view());
    run(expected, same.view());
    EXPECT_EQ(found.to_vector<float>(), expected.to_vector<float>()) << what;
  };
  for (const UnaryOp op : {UnaryOp::gelu, UnaryOp::gelu_tanh, UnaryOp::silu, UnaryOp::relu}) {
    expect_same(formatted("unary {}", static_cast<int>(op)),
                [&](const Tensor& d_x, const View& x) { on.unary_backward(op, 0, d_x.view(), d_y.view(), x); });
  }
  expect_same("turned", [&](const Tensor& d_x, const View& x) {
    View turned = x;  // neighbours in a row are far apart in memory
    turned.shape = {50, 70};
    turned.strides = {{1, 50}};
    const Tensor d = d_x.detached_reshape({50, 70});
    on.unary_backward(UnaryOp::gelu, 0, d.view(), d_y.detached_reshape({50, 70}).view(), turned);
  });
  expect_same("softmax",
              [&](const Tensor& d_x, const View& y) { on.softmax_backward(d_x.view(), d_y.view(), y, false); });
  const Tensor weight = drawn("weight", {50}), moments = drawn("moments", {2, 70});
  const Tensor mean = moments.detached_select(0, 0), rstd = moments.detached_select(0, 1);
  std::vector<std::vector<float>> parameters;
  const auto norm = [&](const Tensor& d_x, const View& x, bool centered) {
    const Tensor d_weight = Tensor::empty({50}, DType::f32, default_device()), d_bias = d_weight.clone();
    const Workspace workspace(on.norm_backward_workspace(x), default_device());
    on.norm_backward(d_x.view(), {}, d_weight.view(), centered ? d_bias.view() : View{}, d_y.view(), x, weight.view(),
                     mean.view(), rstd.view(), false, workspace.data());
    if (centered) parameters.push_back(d_bias.to_vector<float>());
    parameters.push_back(d_weight.to_vector<float>());
  };
  for (const bool centered : {true, false}) {
    parameters.clear();
    expect_same(centered ? "layer_norm" : "rms_norm",
                [&](const Tensor& d_x, const View& x) { norm(d_x, x, centered); });
    const std::size_t half = parameters.size() / 2;
    for (std::size_t n = 0; n < half; ++n) EXPECT_EQ(parameters[n], parameters[half + n]) << centered << n;
  }
}

// A pass that nothing follows rounds nothing.
TEST_P(Kept, NothingIsRoundedWhereNothingIsRecorded) {
  const Tensor weight = leaf("weight", {8, 16});
  const Tensor x = activation("x", {4, 16});
  const NoGrad no_grad;
  const Tensor y = gelu(linear(x, weight));
  EXPECT_EQ(x.storage()->cached_bf16(), nullptr);
}

// Leaves, which exist anyway, are saved as they are. So are other types, and everything if matmuls use f32.
TEST_P(Kept, LeavesAndOtherPrecisionsAreKeptAsTheyAre) {
  EXPECT_EQ(save_activation("test", leaf("x", {3})).get().dtype(), DType::f32);
  const Tensor given = leaf("given", {4, 16});
  const Tensor y = linear(given, leaf("weight", {8, 16}));
  EXPECT_EQ(given.storage()->cached_bf16(), nullptr);
  EXPECT_EQ(save_activation("test", activation("x", {3})).get().dtype(), DType::bf16);
  EXPECT_EQ(save_activation("test", activation("x", {3}).to(DType::f64)).get().dtype(), DType::f64);
  const Tensor repeated = activation("x", {1, 3}).detached_broadcast("test", {50, 3});
  EXPECT_EQ(save_activation("test", repeated).get().storage(), repeated.storage());
  set_matmul_precision(MatmulPrecision::f32);
  EXPECT_EQ(save_activation("test", activation("x", {3})).get().dtype(), DType::f32);
}

}  // namespace tally::kept_test
