// Attention with bf16 operands (cuda/attention/forward_bf16.hpp, backward_bf16.hpp) against plain loops in f64. Bits
// are the same for every order of threads, and for copies that arrive at once or as late as they may.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/device/kernels.hpp"
#include "core/device/workspace.hpp"
#include "core/precision.hpp"
#include "cuda/attention/scan.hpp"
#include "tests/cuda/kernel_bench.hpp"

namespace tally::cuda_host {
namespace {

struct Problem {
  std::int64_t heads, key_heads, queries, keys, width, value_width;
  AttentionMask mask{};
  double dropout = 0;
};

const RandomStream dropped{5, stream_of("weights"), 3};

// [1, heads, rows, width] in bf16.
Tensor operand(std::int64_t heads, std::int64_t rows, std::int64_t width, double start) {
  std::vector<double> values;
  for (std::int64_t n = 0; n < heads * rows * width; ++n) {
    values.push_back(2 * std::sin(start + 1.7 * static_cast<double>(n) + 0.3 * static_cast<double>(n % 7)));
  }
  return Tensor::from(values, {1, heads, rows, width}).to(DType::bf16).to(device);
}

std::vector<double> numbers(const Tensor& x) { return x.to(Device{}).to(DType::f64).to_vector<double>(); }

struct Operands {
  Tensor q, k, v, d_output;
  double scale;
};

// The output and the gradients of q, k and v.
using Results = std::array<std::vector<double>, 4>;

// A sum and the sum of the sizes of its terms, whose rounding errors add up.
struct Sum {
  double value = 0, size = 0;
  void operator+=(double term) {
    value += term;
    size += std::abs(term);
  }
};

// The gradients read the output that was found, because its rounding errors affect whole rows.
std::array<std::vector<Sum>, 4> expected_of(const Problem& one, const Operands& x, const std::vector<double>& found) {
  const std::vector<double> q = numbers(x.q), k = numbers(x.k), v = numbers(x.v), d_o = numbers(x.d_output);
  std::array<std::vector<Sum>, 4> results{std::vector<Sum>(d_o.size()), std::vector<Sum>(q.size()),
                                          std::vector<Sum>(k.size()), std::vector<Sum>(v.size())};
  auto& [output, d_q, d_k, d_v] = results;
  for (std::int64_t n = 0; n < one.heads * one.queries; ++n) {
    const std::int64_t head = n / one.queries, query = one.keys - one.queries + n % one.queries;
    const std::int64_t first_key = head * one.key_heads / one.heads * one.keys;
    const auto at = [](std::int64_t row, std::int64_t width, std::int64_t column) {
      return static_cast<std::size_t>(row * width + column);
    };
    const auto scaled_q = [&](std::int64_t d) {
      return static_cast<double>(
          tally::round_to_bf16(static_cast<float>(q[at(n, one.width, d)]) * static_cast<float>(x.scale)));
    };
    struct Weight {
      std::int64_t key;
      double weight, factor, d_weight;  // factor: of dropout
    };
    std::vector<Weight> weights;
    double total = 0, mean = 0;
    for (std::int64_t d = 0; d < one.value_width; ++d)
      mean += d_o[at(n, one.value_width, d)] * found[at(n, one.value_width, d)];
    for (std::int64_t j = 0; j <= query; ++j) {
      if (!one.mask.attends(query, j)) continue;
      double score = 0, d_weight = 0;
      for (std::int64_t d = 0; d < one.width; ++d) score += scaled_q(d) * k[at(first_key + j, one.width, d)];
      for (std::int64_t d = 0; d < one.value_width; ++d)
        d_weight += d_o[at(n, one.value_width, d)] * v[at(first_key + j, one.value_width, d)];
      const auto element = dropped.first + static_cast<std::uint64_t>(n * one.keys + j);
      const bool kept = static_cast<double>(uniform_from_bits(dropped.bits(element))) >= one.dropout;
      const double factor = kept ? 1 / (1 - one.dropout) : 0;
      weights.push_back({first_key + j, std::exp(score), factor, factor * d_weight});
      total += weights.back().weight;
    }
    for (const Weight& own : weights) {
      const double weight = own.weight / total, d_score = weight * (own.d_weight - mean);
      for (std::int64_t d = 0; d < one.value_width; ++d) {
        output[at(n, one.value_width, d)] += own.factor * weight * v[at(own.key, one.value_width, d)];
        d_v[at(own.key, one.value_width, d)] += own.factor * weight * d_o[at(n, one.value_width, d)];
      }
      for (std::int64_t d = 0; d < one.width; ++d) {
        d_q[at(n, one.width, d)] += x.scale * d_score * k[at(own.key, one.width, d)];
        d_k[at(own.key, one.width, d)] += d_score * scaled_q(d);
      }
    }
  }
  return results;
}

// With an output and gradients of these types.
Results results_of(const Problem& one, const Operands& x, DType of_output, DType of_gradients) {
  const auto like = [&](const Tensor& own) { return Tensor::zeros(own.shape(), of_gradients, device); };
  const Tensor output = Tensor::zeros(x.d_output.shape(), of_output, device);
  const Tensor d_q = like(x.q), d_k = like(x.k), d_v = like(x.v);
  const Tensor statistics = Tensor::empty({one.heads, one.queries, statistics_per_row}, DType::f32, device);
  AttentionCall call{};
  call.scale = x.scale;
  call.mask = one.mask;
  call.dropout = one.dropout;
  call.dropout_stream = dropped;
  call.q = x.q.view(), call.k = x.k.view(), call.v = x.v.view();
  call.output = output.view();
  call.softmax_statistics = statistics.view();
  const Kernels& on = kernels(device);
  EXPECT_EQ(on.attention_workspace(call), 0);  // no f32 copies
  on.attention(call, nullptr);
  AttentionGradients gradients{};
  gradients.d_output = x.d_output.view();
  gradients.q = d_q.view(), gradients.k = d_k.view(), gradients.v = d_v.view();
  const Workspace workspace(on.attention_backward_workspace(call, gradients), device);
  on.attention_backward(call, gradients, workspace.data());
  return {numbers(output), numbers(d_q), numbers(d_k), numbers(d_v)};
}

std::vector<double> rounded(std::vector<double> x) {
  for (double& one : x) one = static_cast<double>(tally::round_to_bf16(static_cast<float>(one)));
  return x;
}

void expect_attention(const Problem& one) {
  SCOPED_TRACE(formatted("{} heads of {}, {} queries, {} keys, window {}", one.heads, one.width, one.queries, one.keys,
                         one.mask.window));
  const Operands x{operand(one.heads, one.queries, one.width, 1), operand(one.key_heads, one.keys, one.width, 2),
                   operand(one.key_heads, one.keys, one.value_width, 3),
                   operand(one.heads, one.queries, one.value_width, 4).to(DType::f32),
                   1 / std::sqrt(static_cast<double>(one.width))};
  const Results first = results_of(one, x, DType::f32, DType::f32);
  const auto expected = expected_of(one, x, first[0]);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    double error = 0, largest = 0;
    for (std::size_t n = 0; n < expected[i].size(); ++n) {
      error = std::max(error, std::abs(first[i][n] - expected[i][n].value));
      largest = std::max(largest, expected[i][n].size);
    }
    constexpr double rounding = 0x1p-8;                        // of weights and of gradients of scores
    EXPECT_LE(error, (i == 0 ? 2 : largest) * rounding) << i;  // values are at most 2
    EXPECT_GT(error, 0x1p-14) << i;                            // they are rounded
  }
  // Results in bf16 are rounded ones.
  const Results of_rounded = results_of(one, x, DType::bf16, DType::f32),
                in_bf16 = results_of(one, x, DType::bf16, DType::bf16);
  EXPECT_EQ(in_bf16[0], rounded(first[0]));
  for (std::size_t i = 0; i < in_bf16.size(); ++i) EXPECT_EQ(in_bf16[i], rounded(of_rounded[i])) << i;
  for (Settings settings : schedules()) {
    for (const bool late : {false, true}) {
      settings.delay_streams = late;
      const WithSettings with(settings);
      EXPECT_EQ(results_of(one, x, DType::bf16, DType::bf16), in_bf16)
          << "schedule " << static_cast<int>(settings.schedule) << " late " << late;
    }
  }
}

// y [16][32]: running sums of x [16][32] along the rows, from the right, beginning with 3.
__global__ void sums_kernel(float* y, const float* x) {
  using namespace attention_kernels;
  float own[2][columns];
  RunningSum<float> sums[2] = {{3, 0}, {3, 0}};
  for (int n = 0; n < 2 * columns; ++n)
    own[n / columns][n % columns] = x[tile_row(n / columns) * tile + tile_column(n % columns)];
  sum_on_tensor_cores<true>(own, sums);
  for (int n = 0; n < 2 * columns; ++n)
    y[tile_row(n / columns) * tile + tile_column(n % columns)] = own[n / columns][n % columns];
  for (int r = 0; r < 2; ++r) y[(warp_rows + r) * tile + lane_of_warp()] = sums[r].value();
}

TEST(AttentionBf16, SumsGatesOnTensorCores) {
  constexpr int tile = attention_kernels::tile;
  std::vector<double> gates;
  for (int n = 0; n < warp_rows * tile; ++n) gates.push_back(0.5 + 0.5 * std::sin(1.7 * n));
  const Tensor x = Tensor::from(gates, {warp_rows, tile}).to(DType::f32).to(device);
  const Tensor y = Tensor::zeros({warp_rows + 2, tile}, DType::f32, device);
  launch(sums_kernel, 1, 32, 0, stream(), y.view().as<float>(), x.view().as<float>());
  const std::vector<double> found = numbers(y);
  constexpr double rounding = 1e-4;  // bf16 alone: 0.02
  for (int row = 0; row < warp_rows; ++row) {
    double sum = 3;
    for (int column = tile - 1; column >= 0; --column) {
      const auto n = static_cast<std::size_t>(row * tile + column);
      sum += gates[n];
      EXPECT_NEAR(found[n], sum, rounding) << row << " " << column;
    }
    for (int lane = row % 8 * row_lanes; lane < (row % 8 + 1) * row_lanes; ++lane) {
      EXPECT_NEAR(found[static_cast<std::size_t>((warp_rows + row / 8) * tile + lane)], sum, rounding);
    }
  }
}

TEST(AttentionBf16, EqualsPlainLoops) {
  expect_attention({2, 1, 150, 150, 64, 64});   // partial tiles, shared keys
  expect_attention({1, 1, 70, 260, 64, 40});    // earlier keys, narrow values
  expect_attention({1, 1, 130, 130, 128, 96});  // the form of wide heads
  expect_attention({1, 1, 1, 200, 64, 64});     // generation
}
TEST(AttentionBf16, MasksWindows) {
  expect_attention({1, 1, 330, 330, 64, 64, {.window = 100}});
  expect_attention({1, 1, 330, 330, 64, 64, {.window = 70, .first = 5}});
  expect_attention({1, 1, 260, 260, 64, 64, {.chunk = 90}});
}
TEST(AttentionBf16, DropsWeights) { expect_attention({2, 1, 150, 150, 64, 64, {}, 0.25}); }

}  // namespace
}  // namespace tally::cuda_host
