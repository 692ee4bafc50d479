// The attention module against its formula in plain loops: head h owns rows h d .. h d + d-1 of the projections.
#include "nn/attention/attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/device/allocator.hpp"
#include "nn/encoding/choice.hpp"

namespace tally {
namespace attention_test {

constexpr std::size_t B = 2, T = 5, H = 3, d = 4, D = H * d;

using Rows = std::vector<double>;  // [T, D] of one sequence, row-major

Rows project(const Rows& x, const Rows& weight, const Rows& bias) {
  Rows y;
  for (std::size_t t = 0; t < T; ++t) {
    for (std::size_t out = 0; out < D; ++out) {
      double total = bias[out];
      for (std::size_t in = 0; in < D; ++in) total += weight[out * D + in] * x[t * D + in];
      y.push_back(total);
    }
  }
  return y;
}

double head_product(const Rows& q, std::size_t i, const Rows& k, std::size_t j, std::size_t h) {
  double total = 0;
  for (std::size_t n = h * d; n < (h + 1) * d; ++n) total += q[i * D + n] * k[j * D + n];
  return total;
}

Rows attend(const Rows& q, const Rows& k, const Rows& v) {
  Rows o(T * D, 0.0);
  for (std::size_t h = 0; h < H; ++h) {
    for (std::size_t i = 0; i < T; ++i) {
      std::vector<double> power;
      double total = 0;
      for (std::size_t j = 0; j <= i; ++j) {
        power.push_back(std::exp(head_product(q, i, k, j, h) / std::sqrt(static_cast<double>(d))));
        total += power.back();
      }
      for (std::size_t j = 0; j <= i; ++j) {
        for (std::size_t n = h * d; n < (h + 1) * d; ++n) o[i * D + n] += power[j] / total * v[j * D + n];
      }
    }
  }
  return o;
}

LayerEncoding plain(std::int64_t heads) {
  EncodingSetup setup;
  setup.heads = setup.key_heads = heads;
  return EncodingChoice::parse("none").make(setup);
}

TEST(Attention, ComputesItsFormula) {
  const Initializer start(4, StartValues::authors, DType::f64);  // biases are not zero
  const Attention attention(start, {D, H, H, D / H}, 0, 1);
  std::map<std::string, Rows> p;
  for (const auto& [path, parameter] : attention.parameters()) p[path] = parameter.to_vector<double>();
  const Tensor x = start.make("x", {B, T, D}, Fill::normal(2));
  const LayerEncoding none = plain(H);
  const Rows all = x.to_vector<double>(), found = attention.forward(x, none, {}).to_vector<double>();
  ASSERT_EQ(found.size(), B * T * D);
  for (std::size_t b = 0; b < B; ++b) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(b * T * D);
    const Rows one(begin, begin + T * D);
    const auto projected = [&](const std::string& name, const Rows& from) {
      return project(from, p.at(name + ".weight"), p.at(name + ".bias"));
    };
    const Rows o = attend(projected("query", one), projected("key", one), projected("value", one));
    const Rows expected = projected("output", o);
    for (std::size_t n = 0; n < expected.size(); ++n) EXPECT_NEAR(found[b * T * D + n], expected[n], 1e-12);
  }
}

TEST(Attention, SplitsHeadsWithoutACopy) {
  const Tensor x = Tensor::zeros({2, 3, 8});
  const Tensor heads = split_heads(x, 2);
  EXPECT_EQ(to_text(heads.shape()), "[2, 2, 3, 4]");
  EXPECT_EQ(heads.storage(), x.storage());
  EXPECT_EQ(to_text(merge_heads(heads).shape()), "[2, 3, 8]");
}

// Only one of the [T, T] tensors, the weights, may stay until backward.
TEST(Attention, KeepsOneSquareTensor) {
  const Initializer start(4, StartValues::gpt2);
  const Attention attention(start, {8, 1, 1, 8}, 0, 1);
  const LayerEncoding none = plain(1);
  const Tensor x = start.make("x", {1, 256, 8}, Fill::normal(1));
  const std::size_t before = memory_counters().live_bytes;
  const Tensor y = attention.forward(x, none, {});
  const std::size_t square = 256 * 256 * sizeof(float);
  EXPECT_LT(memory_counters().live_bytes - before, 2 * square);
  EXPECT_TRUE(requires_grad(y));
}

}  // namespace attention_test
}  // namespace tally
