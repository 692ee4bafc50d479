// Score modifications: numbers with derivatives, the loops for every instruction set, and operands that are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "core/attention/dual.hpp"
#include "nn/attention/attention.hpp"
#include "nn/model.hpp"
#include "tests/error_of.hpp"
#include "tests/nn/score_cases.hpp"

namespace tally::testing {
namespace pair_test {

using attention::Dual;
using attention::input;
using attention::minus_infinity;

// Each operation as a function of two numbers, and the point at which it is tested.
template <class F>
void expect_derivatives(const char* what, const F& f, double a, double b, double step = 1e-6) {
  const auto y = f(input<0>(a), input<1>(b));
  const auto value = [&](double x, double z) { return f(Dual<double>{x, {}}, Dual<double>{z, {}}).value; };
  EXPECT_EQ(y.value, value(a, b)) << what;
  const double by_a = (value(a + step, b) - value(a - step, b)) / (2 * step);
  const double by_b = (value(a, b + step) - value(a, b - step)) / (2 * step);
  using Y = decltype(y);
  double d_a = 0, d_b = 0;
  if constexpr (std::remove_cvref_t<Y>::template has<0>) d_a = y.template by<0>();
  if constexpr (std::remove_cvref_t<Y>::template has<1>) d_b = y.template by<1>();
  EXPECT_NEAR(d_a, by_a, 1e-8 * (1 + std::abs(by_a))) << what << " by a at " << a << ", " << b;
  EXPECT_NEAR(d_b, by_b, 1e-8 * (1 + std::abs(by_b))) << what << " by b at " << a << ", " << b;
  // All lanes of a vector give the same, up to the order of multiplication and addition.
  const auto lanes = [&]<int bytes>() {
    using V = Vector<double, bytes>;
    const auto of_lanes = f(input<0>(splat<V>(a)), input<1>(splat<V>(b)));
    for (std::size_t l = 0; l < bytes / sizeof(double); ++l) {
      EXPECT_NEAR(of_lanes.value[l], y.value, 1e-14 * (1 + std::abs(y.value))) << what << " in " << bytes << " bytes";
      if constexpr (std::remove_cvref_t<Y>::template has<1>) {
        EXPECT_NEAR(of_lanes.template by<1>()[l], d_b, 1e-13 * (1 + std::abs(d_b))) << what << " in " << bytes;
      }
      if constexpr (std::remove_cvref_t<Y>::template has<0>) {
        EXPECT_NEAR(of_lanes.template by<0>()[l], d_a, 1e-13 * (1 + std::abs(d_a))) << what << " in " << bytes;
      }
    }
  };
  lanes.template operator()<16>();
  lanes.template operator()<32>();
  lanes.template operator()<64>();
}

TEST(Duals, HaveTheDerivativesOfCentralDifferences) {
  for (const double a : {-3.2, -0.4, 0.3, 2.1}) {
    for (const double b : {-1.7, 0.6, 5.0}) {
      expect_derivatives(
          "a + b", [](auto x, auto y) { return x + y; }, a, b);
      expect_derivatives(
          "3 - a b", [](auto x, auto y) { return 3 - x * y; }, a, b);
      expect_derivatives(
          "-a / b", [](auto x, auto y) { return -x / y; }, a, b);
      expect_derivatives(
          "2 / a", [](auto x, auto) { return 2 / x; }, a, b);
      expect_derivatives(
          "exp", [](auto x, auto y) { return exp(x * 0.5) * y; }, a, b);
      expect_derivatives(
          "sigmoid", [](auto x, auto y) { return sigmoid(x + y); }, a, b);
      expect_derivatives(
          "softplus", [](auto x, auto y) { return softplus(x) - softplus(y); }, a, b);
      expect_derivatives(
          "tanh", [](auto x, auto y) { return tanh(x * y); }, a, b);
      expect_derivatives(
          "sin, cos", [](auto x, auto y) { return sin(x * y) * cos(x - y) + cos(3 * y); }, a, b);
      expect_derivatives(
          "relu", [](auto x, auto y) { return relu(x) * y; }, a, b);
      expect_derivatives(
          "log", [](auto x, auto y) { return log(x * x + 1) * log(y * y); }, a, b);
      expect_derivatives(
          "sqrt", [](auto x, auto y) { return sqrt(x * x + 0.5) / sqrt(y * y); }, a, b);
      expect_derivatives(
          "abs", [](auto x, auto y) { return abs(x) * y - abs(x + y); }, a, b);
      expect_derivatives(
          "and, or, not", [](auto x, auto y) { return select((x > 0 && !(y > 1)) || x > 2, x * y, min(0.5, x - y)); },
          a, b);
      expect_derivatives(
          "min, max", [](auto x, auto y) { return min(x, y) + 2 * max(y, 0.5); }, a, b);
      expect_derivatives(
          "select", [](auto x, auto y) { return select(x < y, x * x, y); }, a, b);
      expect_derivatives(
          "both", [](auto x, auto y) { return select(x + y >= 1, x, 0) + (x - 1) * (y + 1); }, a, b);
    }
  }
}

TEST(Duals, TakeTheFirstOfTwoEqualsAndNothingAtZero) {
  const auto a = input<0>(2.0);
  const auto b = input<1>(2.0);
  EXPECT_EQ(max(a, b).by<0>(), 1);
  EXPECT_EQ(max(a, b).by<1>(), 0);
  EXPECT_EQ(min(b, a).by<0>(), 0);
  EXPECT_EQ(relu(input<0>(0.0)).by<0>(), 0);
  EXPECT_EQ(abs(input<0>(0.0)).by<0>(), 0);
  const auto hidden = select(a > 5, a, minus_infinity);
  EXPECT_EQ(hidden.value, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(hidden.by<0>(), 0);
}

TEST(Duals, KeepNotANumber) {
  const auto x = input<0>(std::nan(""));
  EXPECT_TRUE(std::isnan(exp(x).value));
  EXPECT_TRUE(std::isnan(sigmoid(x).value));
  EXPECT_TRUE(std::isnan((x + 1).value));
}

AttentionOperands operands(std::int64_t length, DType dtype = DType::f64) {
  const auto part = [&](const char* name) { return normal_tensor(name, {2, 2, length, 8}).to(dtype); };
  return {part("q"), part("k"), part("v"), 1 / std::sqrt(8.0)};
}
// The output of attention with the score modification, and the gradients of all that it was given.
std::vector<Tensor> results_with(const ScoreMod& mod, DType dtype) {
  AttentionOperands in = operands(200, dtype);
  Tensor rows = (normal_tensor("rows", {2, 2, 200, mod.traits.rows}) * 0.2).to(dtype),
         heads = normal_tensor("heads", {2, std::max(1, mod.traits.heads)}).to(dtype),
         table = normal_tensor("table", {2, 2, 200, 11}).to(dtype), knots;
  if (mod.traits.knots) {
    const HiddenSegments hidden = hidden_segments(normal_tensor("w", {7}).to(dtype), normal_tensor("b", {7}).to(dtype));
    knots = hidden.knots;
    table = matmul(slice(table, 3, 0, 7), hidden.units);
  }
  std::vector<Tensor*> leaves{&in.q, &in.k, &in.v};
  if (mod.traits.rows > 0) leaves.push_back(&rows);
  if (mod.traits.heads > 0) leaves.push_back(&heads);
  if (mod.traits.table) leaves.push_back(&table);
  for (Tensor* const leaf : leaves) set_requires_grad(*leaf);
  Score score;
  score.add_score_mod(AppliedScoreMod{&mod, rows, heads, {}, table, knots});
  std::vector<Tensor> results{tiled_attention(in, score)};
  backward(sum(results[0] * normal_tensor("d_output", {2, 2, 200, 8}).to(dtype)));
  for (const Tensor* const leaf : leaves) results.push_back(gradient(*leaf));
  return results;
}

TEST(ScoreModLoops, AgreeForEverySetOfInstructions) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (ScoreMod narrow : {reading_score_mod(), graded_score_mod(), bent_score_mod()}) {
      SCOPED_TRACE(narrow.name);
      const std::vector<Tensor> expected = results_with(narrow, dtype);
      const auto expect_same = [&] {
        const std::vector<Tensor> found = results_with(narrow, dtype);
        const double allowed = dtype == DType::f32 ? 2e-5 : 1e-13;
        for (std::size_t n = 0; n < found.size(); ++n) {
          EXPECT_LE(largest_difference(found[n], expected[n]), allowed * largest(expected[n])) << n;
        }
      };
      narrow.loops_v4 = nullptr;
      expect_same();
      narrow.loops_v3 = nullptr;
      expect_same();
    }
  }
}

// With 200 rows the last tile has lanes without a query, whose numbers are 0. A division by them must not change other
// lanes.
TEST(ScoreModLoops, LanesWithoutAQueryEndNowhere) {
  const AttentionOperands in = operands(200);
  Score score;
  const Tensor rows = abs(normal_tensor("rows", {2, 2, 200, 1})) + 0.5;
  Tensor column = normal_tensor("column", {2, 2, 200}), by_distance = normal_tensor("toeplitz", {2, 200});
  for (Tensor* const leaf : {&column, &by_distance}) set_requires_grad(*leaf);
  score.add_score_mod(AppliedScoreMod{&divided_score_mod(), rows});
  score.biases.push_back(RowColumn{{}, column});
  score.biases.push_back(Toeplitz{by_distance});
  backward(sum(tiled_attention(in, score)));
  for (const Tensor& d : {gradient(column), gradient(by_distance)}) {
    for (const double x : d.to_vector<double>()) ASSERT_TRUE(std::isfinite(x));
  }
}

TEST(ScoreMods, RefuseWhatTheyDoNotRead) {
  const AttentionOperands in = operands(6);
  const auto error = [&](const auto& change) {
    Score score;
    score.add_score_mod(AppliedScoreMod{&threshold_score_mod(), normal_tensor("rows", {2, 2, 6, 2})});
    try {
      change(score);
      tiled_attention(in, score);
    } catch (const Error& refused) {
      return std::string(refused.what());
    }
    return std::string("nothing was refused");
  };
  EXPECT_NE(error([](Score& score) {
              score.score_mod->gates = {normal_tensor("r", {2, 2, 6, 3}), normal_tensor("g", {2, 2, 6, 3})};
            }).find("the score modification 'threshold' is given operands of gates, but does not read p.gate_logit"),
            std::string::npos);
  EXPECT_NE(error([](Score& score) {
              score.score_mod->rows = normal_tensor("rows", {2, 2, 6, 3});
            }).find("the scalars of rows must be f64 [2, 2, 6, 2], got f64 [2, 2, 6, 3]"),
            std::string::npos);
  EXPECT_NE(error([](Score& score) {
              score.biases.push_back(Product{normal_tensor("r", {2, 2, 6, 3}), normal_tensor("g", {2, 2, 6, 3})});
            }).find("does not support this combination of score modifications, products and factors"),
            std::string::npos);
}

// A score modification that was built without CUDA.
const ScoreMod& only_for_the_cpu() {
  static const ScoreMod mod = [] {
    ScoreMod bounded = bounded_score_mod();
    bounded.cuda_host = bounded.cuda = nullptr;
    return bounded;
  }();
  return mod;
}

TEST(ScoreModWithoutKernels, IsRefusedInTilesOfAGpu) {
  set_default_device(on_cuda_host);
  Score score;
  score.add_score_mod(AppliedScoreMod{&only_for_the_cpu(), {}, normal_tensor("heads", {1, 1}).to(on_cuda_host)});
  const auto part = [](const char* name) { return normal_tensor(name, {1, 1, 3, 4}).to(on_cuda_host); };
  const AttentionOperands in{part("q"), part("k"), part("v"), 0.5};
  const std::string error = error_of([&] { tiled_attention(in, score); });
  set_default_device({});
  EXPECT_NE(error.find("fused attention on cuda-host does not support"), std::string::npos) << error;
}

// An encoding with such a score modification.
class Bounds final : public Encoding {
 public:
  void score(const AttentionInput& in, Score& score) const override {
    score.add_score_mod(AppliedScoreMod{&only_for_the_cpu(), {}, normal_tensor("heads", {2, 1}).to(in.q.device())});
  }
};

TEST(ScoreModWithoutKernels, IsComposedOnAGpuByItself) {
  const Tensor x = normal_tensor("x", {2, 9, 8});
  const auto outcome = [&](Device device) {
    set_default_device(device);
    const Initializer start(1, StartValues::fan_in, DType::f64, device);
    ModelOptions model;
    model.width = 8, model.heads = 2;
    const Attention attention(start, model);
    LayerEncoding layer;
    layer.push_back({0, 2, 0, 2, std::make_unique<Bounds>()});
    const NoGrad only_values;
    const Tensor y = attention.forward(x.to(device), layer, {}).to(Device{});
    set_default_device({});
    return y;
  };
  EXPECT_LE(largest_difference(outcome(on_cuda_host), outcome({})), 1e-12);
}

}  // namespace pair_test
}  // namespace tally::testing
