// Several operations as one. The layers of an MLP give the same as single operations in f32 and f64. With bf16 matmuls
// they round the intermediate results (core/precision.md). Also results that are added to others, and norms that write
// for matmuls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/score.hpp"
#include "core/device/workspace.hpp"
#include "core/math/random.hpp"
#include "tests/devices.hpp"
#include "tests/error_of.hpp"

namespace tally::layer_test {

constexpr UnaryOp activations[] = {UnaryOp::relu, UnaryOp::gelu, UnaryOp::gelu_tanh, UnaryOp::silu};

class Layers : public testing::OnDevice {
 protected:
  void TearDown() override {
    set_matmul_precision(MatmulPrecision::f32);
    OnDevice::TearDown();
  }
};
TALLY_ON_EVERY_DEVICE(Layers);

Tensor drawn(const std::string& name, const Shape& shape, DType dtype) {
  const Tensor x = Tensor::empty(shape, DType::f64, default_device());
  kernels(x.device()).random_normal(x.view(), RandomStream{1, stream_of(name), 0}, 0, 1);
  return x.to(DType::f32).to(dtype);
}

// The result of residual + down(op(up(x))), and the gradients of all its inputs.
struct Outcome {
  std::vector<std::vector<double>> numbers;
};
Outcome compute(UnaryOp op, bool as_one, DType dtype, bool with_bias = true, bool residual = true) {
  constexpr std::int64_t in = 24, hidden = 40;
  std::vector<Tensor> leaves = {drawn("x", {3, 11, in}, dtype),        drawn("up", {hidden, in}, dtype),
                                drawn("bias", {hidden}, dtype),        drawn("down", {in, hidden}, dtype),
                                drawn("residual", {3, 11, in}, dtype), drawn("down bias", {in}, dtype)};
  for (Tensor& leaf : leaves) set_requires_grad(leaf);
  const Tensor x = leaves[0] * 0.5, bias = with_bias ? leaves[2] : Tensor();
  const Tensor down_bias = with_bias ? leaves[5] : Tensor();
  Tensor y;
  if (as_one) {
    y = mlp(op, x, {leaves[1], bias}, {leaves[3], down_bias}, residual ? leaves[4] * 2.0 : Tensor());
  } else {
    y = linear(unary(op, linear(x, leaves[1], bias)), leaves[3], down_bias);
    if (residual) y = y + leaves[4] * 2.0;
  }
  EXPECT_EQ(y.dtype(), dtype);
  backward(y, drawn("d_y", y.shape(), dtype));
  Outcome outcome{{y.to(DType::f64).to_vector<double>()}};
  for (const Tensor& leaf : leaves) {
    const Tensor d = gradient(leaf);
    outcome.numbers.push_back(d.defined() ? d.to(DType::f64).to_vector<double>() : std::vector<double>{});
  }
  return outcome;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double square = 0;
  for (std::size_t n = 0; n < a.size(); ++n) square += (a[n] - b[n]) * (a[n] - b[n]);
  return std::sqrt(square);
}

TEST_P(Layers, AreTheOperationsWhereNothingIsRounded) {
  for (const UnaryOp op : activations) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      for (const bool with_bias : {true, false}) {
        for (const bool residual : {true, false}) {
          const Outcome one = compute(op, true, dtype, with_bias, residual);
          const Outcome several = compute(op, false, dtype, with_bias, residual);
          // The sum begins with the residual.
          const double rounding = dtype == DType::f64 ? 0x1p-52 : 0x1p-23;
          EXPECT_LE(distance(one.numbers[0], several.numbers[0]), rounding * 40 * std::sqrt(792.0));
          for (std::size_t n = 1; n < one.numbers.size(); ++n) {
            const double size = distance(several.numbers[n], std::vector<double>(several.numbers[n].size()));
            EXPECT_LE(distance(one.numbers[n], several.numbers[n]), rounding * 40 * size) << n;
          }
        }
      }
    }
  }
}

// As near to f64 as the two operations, whose activation reads and writes f32, times the two roundings more.
TEST_P(Layers, RoundsAsMuchAsItSays) {
  for (const UnaryOp op : activations) {
    const Outcome exact = compute(op, false, DType::f64);
    set_matmul_precision(MatmulPrecision::bf16);
    const Outcome as_one = compute(op, true, DType::f32), as_two = compute(op, false, DType::f32);
    set_matmul_precision(MatmulPrecision::f32);
    for (std::size_t n = 0; n < exact.numbers.size(); ++n) {
      const double error = distance(as_one.numbers[n], exact.numbers[n]);
      EXPECT_LE(error, 2 * distance(as_two.numbers[n], exact.numbers[n])) << static_cast<int>(op) << " " << n;
      const bool is_exact = n == 5;  // the residual's gradient is d_y itself
      EXPECT_EQ(error == 0, is_exact) << static_cast<int>(op) << " " << n;
    }
  }
}

TEST_P(Layers, RoundWhatLiesBetween) {
  set_matmul_precision(MatmulPrecision::bf16);
  const Tensor x = drawn("x", {7, 24}, DType::f32), up = drawn("up", {40, 24}, DType::f32);
  const Tensor down = drawn("down", {24, 40}, DType::f32), residual = drawn("residual", {7, 24}, DType::f32);
  for (const UnaryOp op : activations) {
    const Tensor argument = linear(x, up).to(DType::bf16), rounded = argument.clone();
    kernels(default_device()).unary(op, 0, rounded.view(), argument.view());
    const Tensor hidden = rounded.to(DType::f32);
    EXPECT_EQ(mlp(op, x, {up, {}}, {down, {}}).to_vector<float>(), linear(hidden, down).to_vector<float>());
    EXPECT_EQ(mlp(op, x, {up, {}}, {down, {}}, residual).to_vector<float>(),
              linear(hidden, down, {}, residual).to_vector<float>());
  }
}

TEST_P(Layers, NameWhatDoesNotFit) {
  for (const MatmulPrecision precision : {MatmulPrecision::f32, MatmulPrecision::bf16}) {
    set_matmul_precision(precision);
    const Tensor x = drawn("x", {7, 24}, DType::f32), up = drawn("up", {40, 24}, DType::f32);
    const Tensor down = drawn("down", {24, 40}, DType::f32), none;
    const auto message = [&](const Tensor& first, const Tensor& second, const Tensor& residual) {
      return testing::error_of([&] { mlp(UnaryOp::gelu, x, {first, none}, {second, none}, residual); });
    };
    EXPECT_NE(message(down, up, none).find("x [7, 24] does not fit the weight [24, 40]"), std::string::npos);
    EXPECT_NE(message(up, up, none).find("x [7, 40] does not fit the weight [40, 24]"), std::string::npos);
    EXPECT_NE(
        message(up, down, drawn("residual", {7, 23}, DType::f32)).find("shape of the result, [7, 24], got [7, 23]"),
        std::string::npos);
    EXPECT_NE(message(up, down, drawn("residual", {7, 24}, DType::f64)).find("f64"), std::string::npos);
  }
}

// Without rows the gradients are sums of nothing, which are 0.
TEST_P(Layers, OfNoRowsHaveNoGradient) {
  for (const MatmulPrecision precision : {MatmulPrecision::f32, MatmulPrecision::bf16}) {
    set_matmul_precision(precision);
    Tensor up = drawn("up", {40, 24}, DType::f32), bias = drawn("bias", {40}, DType::f32);
    const Tensor down = drawn("down", {24, 40}, DType::f32);
    set_requires_grad(up);
    set_requires_grad(bias);
    const Tensor y = mlp(UnaryOp::gelu, Tensor::zeros({0, 24}, DType::f32, default_device()), {up, bias}, {down, {}});
    backward(y, Tensor::zeros({0, 24}, DType::f32, default_device()));
    EXPECT_EQ(gradient(up).to_vector<float>(), std::vector<float>(40 * 24));
    EXPECT_EQ(gradient(bias).to_vector<float>(), std::vector<float>(40));
  }
}

// A residual that has no other owner becomes the result; otherwise it does not change.
TEST_P(Layers, AddToWhatNobodyElseHolds) {
  const Tensor x = drawn("x", {7, 24}, DType::f32), weight = drawn("up", {40, 24}, DType::f32);
  for (const MatmulPrecision precision : {MatmulPrecision::f32, MatmulPrecision::bf16}) {
    set_matmul_precision(precision);
    Tensor residual = drawn("residual", {7, 40}, DType::f32);
    const std::vector<float> before = residual.to_vector<float>();
    const Tensor beside = linear(x, weight, {}, residual);
    EXPECT_EQ(residual.to_vector<float>(), before);
    const Tensor other = drawn("residual", {40, 7}, DType::f32).detached_transpose(0, 1);
    EXPECT_EQ(linear(x, weight, {}, other).to_vector<float>(),
              linear(x, weight, {}, other.to_dense()).to_vector<float>());
    const void* const place = residual.view().data;
    const Tensor instead = linear(x, weight, {}, std::move(residual));
    EXPECT_EQ(instead.view().data, place);
    EXPECT_EQ(instead.to_vector<float>(), beside.to_vector<float>());
  }
}

// A norm that writes for matmuls writes the operands already rounded, and its gradients are the same. Other readers of
// x get their gradient in the same place.
TEST_P(Layers, NormsWriteForProducts) {
  set_matmul_precision(MatmulPrecision::bf16);
  for (const bool centred : {true, false}) {
    const auto outcome = [&](OutputPrecision precision, bool residual) {
      Tensor given = drawn("x", {3, 11, 24}, DType::f32), weight = drawn("weight", {24}, DType::f32);
      Tensor bias = drawn("bias", {24}, DType::f32), up = drawn("up", {24, 24}, DType::f32);
      for (Tensor* const leaf : {&given, &weight, &bias, &up}) set_requires_grad(*leaf);
      const Tensor x = given * 2.0;
      const Tensor normed =
          centred ? layer_norm(x, weight, bias, 1e-5, precision) : rms_norm(x, weight, 1e-6, precision);
      EXPECT_EQ(normed.dtype(), precision == OutputPrecision::matmul_input ? DType::bf16 : DType::f32);
      EXPECT_EQ(x.storage()->cached_bf16() != nullptr, true);
      const Tensor y = residual ? linear(normed, up, {}, x) : linear(normed, up) + x * 1.0;
      backward(y, drawn("d_y", y.shape(), DType::f32));
      std::vector<std::vector<float>> all{y.to_vector<float>()};
      for (const Tensor& leaf : {given, weight, up}) all.push_back(gradient(leaf).to_vector<float>());
      if (centred) all.push_back(gradient(bias).to_vector<float>());
      return all;
    };
    EXPECT_EQ(outcome(OutputPrecision::matmul_input, true), outcome(OutputPrecision::full, true));
    const auto one = outcome(OutputPrecision::matmul_input, true),
               several = outcome(OutputPrecision::matmul_input, false);
    for (std::size_t n = 0; n < one.size(); ++n) {
      const std::vector<double> a(one[n].begin(), one[n].end()), b(several[n].begin(), several[n].end());
      EXPECT_LE(distance(a, b), 0x1p-20 * distance(b, std::vector<double>(b.size()))) << n;
    }
  }
  set_matmul_precision(MatmulPrecision::f32);
  const Tensor x = drawn("x", {7, 24}, DType::f32), weight = drawn("weight", {24}, DType::f32);
  EXPECT_EQ(rms_norm(x, weight, 1e-6, OutputPrecision::matmul_input).dtype(), DType::f32);
}

// Its input may be read again, each time with another gradient, and the precision may have changed.
TEST_P(Layers, HasGradientsWhoeverReadsItAndHoweverProductsRoundThen) {
  const Tensor x = drawn("x", {7, 24}, DType::f32) * 1.0;
  const auto gradients = [&](int readers, MatmulPrecision later, MatmulPrecision first = MatmulPrecision::bf16) {
    Tensor up = drawn("up", {40, 24}, DType::f32), bias = drawn("one", {1}, DType::f32);
    set_requires_grad(up);
    set_matmul_precision(first);
    const Tensor h = rms_norm(x, drawn("weight", {24}, DType::f32), 1e-6, OutputPrecision::matmul_input);
    const Tensor down = drawn("down", {24, 40}, DType::f32), spread = bias.detached_broadcast("bias", {40});
    Tensor y = mlp(UnaryOp::gelu, h, {up, spread}, {down, {}});
    for (int n = 1; n < readers; ++n) y = y + mlp(UnaryOp::gelu, h, {up, spread}, {down, {}});
    set_matmul_precision(later);
    backward(y * (1.0 / readers), drawn("d_y", y.shape(), DType::f32));
    set_matmul_precision(MatmulPrecision::f32);
    return gradient(up).to(DType::f64).to_vector<double>();
  };
  const std::vector<double> expected = gradients(1, MatmulPrecision::bf16), none(expected.size());
  const double close = 0.02 * distance(expected, none);
  EXPECT_LE(distance(gradients(2, MatmulPrecision::bf16), expected), close);
  EXPECT_LE(distance(gradients(3, MatmulPrecision::bf16), expected), close);
  EXPECT_LE(distance(gradients(1, MatmulPrecision::f32), expected), close);
  EXPECT_LE(distance(gradients(1, MatmulPrecision::bf16, MatmulPrecision::f32), expected), close);
}

// y, of numbers nearer to x than `error`, rounded to bf16.
void expect_rounded(const Tensor& y, const Tensor& x, const std::vector<float>& error) {
  const std::vector<float> found = y.to(DType::f32).to_vector<float>(), exact = x.to_vector<float>();
  for (std::size_t n = 0; n < found.size(); ++n) {
    EXPECT_GE(found[n], static_cast<float>(Bfloat16(exact[n] - error[n]))) << n;
    EXPECT_LE(found[n], static_cast<float>(Bfloat16(exact[n] + error[n]))) << n;
  }
}

// Kernels in bf16, against themselves on the same numbers in f32. On the CPU GELU is another function
// (core/cpu/matmul/gelu_piecewise.hpp).
TEST_P(Layers, KernelsComputeInF32) {
  const Shape shape{70, 50};
  const Kernels& on = kernels(default_device());
  const Tensor x = drawn("x", shape, DType::f32).to(DType::bf16), d_y = drawn("d_y", shape, DType::f32).to(DType::bf16);
  const Tensor wide_x = x.to(DType::f32), wide_d_y = d_y.to(DType::f32);
  for (const UnaryOp op : activations) {
    const float of_gelu = op == UnaryOp::gelu && is_cpu(x.device()) ? 4e-7F : 0.0F;
    const std::vector<float> error(static_cast<std::size_t>(shape.numel()), of_gelu);
    std::vector<float> error_of_derivative = wide_d_y.to_vector<float>();
    for (float& one : error_of_derivative) one = of_gelu > 0 ? 1.5e-6F * std::abs(one) : 0.0F;
    const Tensor y = Tensor::empty(shape, DType::bf16, x.device()), d_x = y.clone();
    const Tensor wide_y = Tensor::empty(shape, DType::f32, x.device()), wide_d_x = wide_y.clone();
    on.unary(op, 0, y.view(), x.view());
    on.unary(op, 0, wide_y.view(), wide_x.view());
    expect_rounded(y, wide_y, error);
    const bool from_output = unary_needs_output(op);
    on.unary_backward(op, 0, d_x.view(), d_y.view(), (from_output ? y : x).view());
    on.unary_backward(op, 0, wide_d_x.view(), wide_d_y.view(), (from_output ? y.to(DType::f32) : wide_x).view());
    expect_rounded(d_x, wide_d_x, error_of_derivative);
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

TEST_P(Layers, KeepHalf) {
  constexpr std::int64_t rows = 64, width = 32, hidden = 128;
  Tensor up = drawn("up", {hidden, width}, DType::f32), down = drawn("down", {width, hidden}, DType::f32);
  Tensor x = drawn("x", {rows, width}, DType::f32);
  for (Tensor* const leaf : {&up, &down, &x}) set_requires_grad(*leaf);
  for (const bool rounds : {true, false}) {
    set_matmul_precision(rounds ? MatmulPrecision::bf16 : MatmulPrecision::f32);
    const Tensor given = x * 0.5;
    const std::size_t before = memory_counters(default_device()).live_bytes;
    const Tensor y = mlp(UnaryOp::gelu, given, {up, {}}, {down, {}});
    const std::size_t bytes = memory_counters(default_device()).live_bytes - before;
    // Saved are the input and the result of op, in bf16 also the rounded x, next to x itself and y.
    const auto kept = rounds ? 2 * (2 * rows * hidden + rows * width) : 4 * 2 * rows * hidden;
    // On CUDA both weights are rounded once, for all products of a step.
    const bool once = rounds && !is_cpu(default_device());
    EXPECT_EQ(bytes, static_cast<std::size_t>(kept + 4 * rows * width + (once ? 2 * 2 * width * hidden : 0)));
    for (const Tensor& weight : {up, down}) EXPECT_EQ(weight.storage()->cached_bf16() != nullptr, once);
    backward(sum(y));
  }
}

// The gradients of x, of a table, and of weights and biases of queries, keys and values, as one matmul or as three
// layers. Attention writes gradients of queries, keys and values, and the table's matmul adds to the first.
// Without attention only the queries have a gradient.
std::vector<std::vector<double>> gradients_of_heads(bool as_one, bool with_attention, DType dtype) {
  constexpr std::int64_t batch = 2, tokens = 40, in = 24, heads = 2, width = 8, out = heads * width;
  const Tensor weight = drawn("weight", {3 * out, in}, dtype), bias = drawn("bias", {3 * out}, dtype);
  std::vector<Tensor> leaves = {drawn("x", {batch, tokens, in}, dtype), drawn("table", {5, width}, dtype)};
  for (std::int64_t n = 0; n < 3; ++n) {
    for (const Tensor& all : {weight, bias}) {
      const Tensor part = all.detached_slice(0, n * out, (n + 1) * out);
      leaves.push_back(as_one ? part : part.clone());
    }
  }
  for (Tensor& leaf : leaves) set_requires_grad(leaf);
  const Tensor x = leaves[0] * 0.5;
  std::vector<Tensor> results;
  std::vector<LinearWeights> layers;
  for (std::size_t n = 2; n < leaves.size(); n += 2) layers.push_back({leaves[n], leaves[n + 1]});
  if (as_one) {
    results = linear_heads(x, {weight, bias}, layers, heads, OutputPrecision::matmul_input);
  } else {
    for (const LinearWeights& layer : layers) {
      const Tensor rows = linear(x, layer.weight, layer.bias, {}, OutputPrecision::matmul_input);
      results.push_back(transpose(reshape(rows, {batch, tokens, heads, width}), 1, 2));
    }
  }
  Tensor loss = sum(square(matmul(results[0], transpose(leaves[1], 0, 1))));
  if (with_attention) loss = loss + sum(square(tiled_attention({results[0], results[1], results[2], 0.35}, {})));
  backward(loss);
  std::vector<std::vector<double>> gradients;
  for (const Tensor& leaf : leaves) {
    const Tensor d = gradient(leaf).defined() ? gradient(leaf) : Tensor::zeros(leaf.shape(), dtype, leaf.device());
    gradients.push_back(d.to(DType::f64).to_vector<double>());
  }
  return gradients;
}

TEST_P(Layers, OfOneInputHaveTheirOwnGradientsInOneMatmul) {
  if (is_cpu(default_device())) GTEST_SKIP() << "the CPU computes each layer by itself";
  struct Case {
    DType dtype;
    MatmulPrecision precision;
    double tolerance;
  };
  for (const Case& one : {Case{DType::f64, MatmulPrecision::f32, 1e-13}, Case{DType::f32, MatmulPrecision::f32, 1e-5},
                          Case{DType::f32, MatmulPrecision::bf16, 0.02}}) {
    set_matmul_precision(one.precision);
    for (const bool with_attention : {true, false}) {
      const std::vector<std::vector<double>> joined = gradients_of_heads(true, with_attention, one.dtype);
      const std::vector<std::vector<double>> separate = gradients_of_heads(false, with_attention, one.dtype);
      const auto size_of = [](const std::vector<double>& x) { return distance(x, std::vector<double>(x.size())); };
      for (std::size_t n = 0; n < joined.size(); ++n) {
        // The gradient of the keys' bias is 0 except for rounding errors, so the bound of a bias is relative to the
        // gradient of its weight, the tensor before it.
        const bool is_bias = n > 2 && n % 2 == 1;
        const double size = size_of(separate[is_bias ? n - 1 : n]);
        EXPECT_LE(distance(joined[n], separate[n]), one.tolerance * size) << n << " " << with_attention;
      }
    }
  }
}

}  // namespace tally::layer_test
