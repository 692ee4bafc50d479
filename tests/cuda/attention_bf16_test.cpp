// Attention with bf16 operands (cuda/attention/forward_bf16.hpp) against plain loops in f64, with the same bits for
// every order of threads and for copies that arrive at once or as late as they may.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/device/kernels.hpp"
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
  Tensor q, k, v;
  double scale;
};

std::vector<double> expected_of(const Problem& one, const Operands& x) {
  const std::vector<double> q = numbers(x.q), k = numbers(x.k), v = numbers(x.v);
  std::vector<double> output;
  const auto row = [](const std::vector<double>& of, std::int64_t at, std::int64_t width) {
    return of.data() + at * width;
  };
  for (std::int64_t n = 0; n < one.heads * one.queries; ++n) {
    const std::int64_t head = n / one.queries, query = one.keys - one.queries + n % one.queries;
    const std::int64_t first_key = head * one.key_heads / one.heads * one.keys;
    std::vector<double> o(static_cast<std::size_t>(one.value_width));
    double total = 0;
    for (std::int64_t j = 0; j <= query; ++j) {
      if (!one.mask.attends(query, j)) continue;
      double score = 0;
      for (std::int64_t d = 0; d < one.width; ++d) {
        const auto scaled = static_cast<float>(row(q, n, one.width)[d]) * static_cast<float>(x.scale);
        score += static_cast<double>(round_to_bf16(scaled)) * row(k, first_key + j, one.width)[d];
      }
      const double weight = std::exp(score);
      total += weight;
      const auto element = dropped.first + static_cast<std::uint64_t>(n * one.keys + j);
      const bool kept = static_cast<double>(uniform_from_bits(dropped.bits(element))) >= one.dropout;
      const double factor = kept ? 1 / (1 - one.dropout) : 0;
      for (std::int64_t d = 0; d < one.value_width; ++d) {
        o[static_cast<std::size_t>(d)] += factor * weight * row(v, first_key + j, one.value_width)[d];
      }
    }
    for (const double sum : o) output.push_back(sum / total);
  }
  return output;
}

std::vector<double> output_of(const Problem& one, const Operands& x) {
  const Tensor output = Tensor::zeros({1, one.heads, one.queries, one.value_width}, DType::f32, device);
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
  return numbers(output);
}

void expect_attention(const Problem& one) {
  SCOPED_TRACE(formatted("{} heads of {}, {} queries, {} keys, window {}", one.heads, one.width, one.queries, one.keys,
                         one.mask.window));
  const Operands x{operand(one.heads, one.queries, one.width, 1), operand(one.key_heads, one.keys, one.width, 2),
                   operand(one.key_heads, one.keys, one.value_width, 3), 1 / std::sqrt(static_cast<double>(one.width))};
  const std::vector<double> expected = expected_of(one, x), first = output_of(one, x);
  double error = 0;
  for (std::size_t n = 0; n < expected.size(); ++n) error = std::max(error, std::abs(first[n] - expected[n]));
  constexpr double weight_rounding = 0x1p-8;  // values are at most 2
  EXPECT_LE(error, 2 * weight_rounding);
  EXPECT_GT(error, 0x1p-14);  // weights are rounded to bf16
  for (Settings settings : schedules()) {
    for (const bool late : {false, true}) {
      settings.delay_streams = late;
      const WithSettings with(settings);
      EXPECT_EQ(output_of(one, x), first) << "schedule " << static_cast<int>(settings.schedule) << " late " << late;
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
  sum_leftward_on_tensor_cores(own, sums);
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
