// Products whose operands are rounded to bf16: the order of their sums on every kind of instructions, every way of
// cutting, any number of threads.
#include "core/cpu/matmul/matmul.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "core/cpu/floating_mode.hpp"
#include "core/cpu/parallel.hpp"
#include "core/device/backend.hpp"
#include "core/device/kernels.hpp"
#include "core/device/workspace.hpp"
#include "core/error.hpp"
#include "core/math/bfloat16.hpp"
#include "tests/core/bf16_kinds.hpp"
#include "tests/core/matrices.hpp"

namespace tally::matmul_bf16_test {

using Kind = testing::Bf16Kind;
using testing::bf16_kinds;
using testing::bias_of;
using testing::Order;

struct Case {
  std::int64_t batch, m, n, k;
  bool transpose_a = false, transpose_b = false, transpose_c = false;
  std::int64_t pad = 0;
  bool bias = false;
  double alpha = 1;
  bool add = false;
};

std::string describe(const Case& c) {
  return formatted("{} x {}x{}x{}{}{}{} pad {}{} alpha {}{}", c.batch, c.m, c.n, c.k, c.transpose_a ? " a^T" : "",
                   c.transpose_b ? " b^T" : "", c.transpose_c ? " c^T" : "", c.pad, c.bias ? " bias" : "", c.alpha,
                   c.add ? " add" : "");
}

// In f32, with padding of NaN.
struct Matrices : testing::Matrices<float> {
  Matrices(unsigned seed, std::int64_t batch, std::int64_t rows, std::int64_t columns, bool transposed,
           std::int64_t pad)
      : testing::Matrices<float>(seed, batch, rows, columns, transposed ? Order::columns : Order::rows, pad) {}
};

float rounded(float x) { return static_cast<float>(Bfloat16(x)); }

// The sums of numbers begin .. end - 1 in the order of the tiles.
float sum_in_order(const std::vector<float>& a, const std::vector<float>& b, std::size_t begin, std::size_t end,
                   bool halves) {
  const auto term = [&](std::size_t k, float s) { return k < end ? std::fma(rounded(a[k]), rounded(b[k]), s) : s; };
  float sum = 0;
  for (std::size_t k = begin; k < end; k += halves ? 32 : 2) {
    if (!halves) {
      sum = term(k, term(k + 1, sum));
      continue;
    }
    float even = 0, odd = 0;
    for (std::size_t pair = k; pair < k + 32; pair += 2) {
      even = term(pair, even);
      odd = term(pair + 1, odd);
    }
    sum += even + odd;
  }
  return sum;
}

// One matmul by this microkernel.
void multiply(const Case& one, const Matrices& a, const Matrices& b, const View& bias, Matrices& c,
              const cpu::Microkernel& kernel) {
  const Workspace workspace(cpu::matmul_workspace_by(&kernel, c.view, a.view), {});
  const Epilogue epilogue{.alpha = one.alpha, .bias = bias, .residual = one.add ? c.view : View{}};
  cpu::matmul_by(&kernel, c.view, a.view, b.view, epilogue, workspace.data());
}

// `parts`: of a long sum, and the numbers in each but the last.
void expect_order(const Case& one, std::int64_t parts = 1, std::int64_t part = 0) {
  Matrices a(1, one.batch, one.m, one.k, one.transpose_a, one.pad),
      b(2, one.batch, one.k, one.n, one.transpose_b, one.pad);
  Matrices bias(3, 1, 1, one.n, false, 0), before(4, one.batch, one.m, one.n, false, one.pad);
  const View bias_view = one.bias ? bias_of(bias.data, one.n) : View{};
  for (const Kind& kind : bf16_kinds()) {
    SCOPED_TRACE(describe(one) + " by " + kind.name);
    Matrices c(4, one.batch, one.m, one.n, false, one.pad);
    multiply(one, a, b, bias_view, c, *kind.kernel);
    std::int64_t wrong = 0;
    std::vector<float> row(static_cast<std::size_t>(one.k)), column(row);
    for (std::int64_t matrix = 0; matrix < one.batch; ++matrix) {
      for (std::int64_t i = 0; i < one.m; i += 1 + one.m / 40) {
        for (std::int64_t j = 0; j < one.n; j += 1 + one.n / 40) {
          for (std::int64_t k = 0; k < one.k; ++k) {
            row[static_cast<std::size_t>(k)] = a.at(matrix, i, k);
            column[static_cast<std::size_t>(k)] = b.at(matrix, k, j);
          }
          float sum = 0;
          for (std::int64_t p = 0; p < parts; ++p) {
            const std::int64_t begin = p * part, end = p + 1 < parts ? begin + part : one.k;
            sum +=
                sum_in_order(row, column, static_cast<std::size_t>(begin), static_cast<std::size_t>(end), kind.halves);
          }
          const float more = (one.bias ? bias.at(0, 0, j) : 0) + (one.add ? before.at(matrix, i, j) : 0);
          const float expected = std::fma(static_cast<float>(one.alpha), sum, more);
          const float found = c.at(matrix, i, j);
          if (std::bit_cast<std::uint32_t>(found) != std::bit_cast<std::uint32_t>(expected) && wrong++ == 0) {
            ADD_FAILURE() << "[" << matrix << ", " << i << ", " << j << "] " << found << ", not " << expected;
          }
        }
      }
    }
    EXPECT_EQ(wrong, 0);
    for (std::size_t n = 0; n < c.data.size(); ++n) {
      ASSERT_EQ(std::isnan(c.data[n]), std::isnan(before.data[n])) << "element " << n << " behind a row";
    }
  }
}

TEST(MatmulBf16, AddsInTheOrderItPromisesWhateverTheShape) {
  for (const Case& one :
       {Case{1, 1, 1, 1}, Case{1, 12, 32, 32}, Case{1, 13, 33, 31}, Case{2, 5, 70, 65}, Case{1, 100, 64, 96},
        Case{5, 40, 45, 50}, Case{1, 3, 2, 0}, Case{1, 97, 40, 1100}, Case{4, 13, 33, 1100}}) {
    expect_order(one);
  }
}

TEST(MatmulBf16, ReadsOperandsInEitherOrder) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      expect_order({1, 45, 51, 67, transpose_a, transpose_b, false, 3});
      expect_order({5, 17, 34, 35, transpose_a, transpose_b, false, 1});
    }
  }
}

// A copy of the same layout whose numbers are bf16.
struct Bf16Scope {
  std::vector<Bfloat16> data;
  View view;
  explicit Bf16Scope(const Matrices& x) : view(x.view) {
    for (const float number : x.data) data.emplace_back(number);
    view.data = data.data();
    view.dtype = DType::bf16;
  }
};

TEST(MatmulBf16, ReadsOperandsOfBf16LikeThoseThatItRounds) {
  for (const Kind& kind : bf16_kinds()) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        for (const Case& one :
             {Case{1, 45, 51, 67, transpose_a, transpose_b, false, 3}, Case{5, 17, 34, 35, transpose_a, transpose_b},
              // Whole tiles of rows of a, pairs, and whole and odd steps between rows: all read in place.
              Case{1, 192, 40, 64, transpose_a, transpose_b}, Case{2, 96, 70, 1056, transpose_a, transpose_b, false, 2},
              Case{1, 192, 40, 64, transpose_a, transpose_b, false, 1},
              Case{1, 13, 33, 1100, transpose_a, transpose_b, false, 1}, Case{1, 1, 1, 1, transpose_a, transpose_b}}) {
          Matrices a(1, one.batch, one.m, one.k, one.transpose_a, one.pad),
              b(2, one.batch, one.k, one.n, one.transpose_b, one.pad);
          Matrices expected(3, one.batch, one.m, one.n, false, 0);
          multiply(one, a, b, {}, expected, *kind.kernel);
          Bf16Scope kept_a(a), kept_b(b);
          for (const auto& [of_a, of_b] :
               {std::pair{kept_a.view, b.view}, std::pair{a.view, kept_b.view}, std::pair{kept_a.view, kept_b.view}}) {
            Matrices c(3, one.batch, one.m, one.n, false, 0);
            const Workspace workspace(cpu::matmul_workspace_by(kind.kernel, c.view, of_a), {});
            cpu::matmul_by(kind.kernel, c.view, of_a, of_b, {}, workspace.data());
            EXPECT_EQ(c.data, expected.data) << describe(one) << " by " << kind.name;
          }
        }
      }
    }
  }
}

// A bf16 c is the f32 result rounded, where sums are whole numbers. The padding between its rows does not change.
TEST(MatmulBf16, WritesWhatItWouldWriteInBf16) {
  for (const Kind& kind : bf16_kinds()) {
    for (const Case& one : {Case{1, 45, 51, 67, false, true, false, 3}, Case{1, 96, 64, 64}, Case{1, 1, 1, 1},
                            Case{1, 70, 33, 0}, Case{1, 400, 300, 1100, true, false, false, 5}}) {
      for (const bool with_bias : {false, true}) {
        const double alpha = with_bias ? 1.0 : 0.3;
        Matrices a(1, 1, one.m, one.k, one.transpose_a, one.pad), b(2, 1, one.k, one.n, one.transpose_b, one.pad);
        Matrices bias(3, 1, 1, one.n, false, 0), c(4, 1, one.m, one.n, false, one.pad);
        Bf16Scope found(c);
        const View bias_view = with_bias ? bias_of(bias.data, one.n) : View{};
        for (const View& of : {c.view, found.view}) {
          const Workspace workspace(cpu::matmul_workspace_by(kind.kernel, of, a.view), {});
          cpu::matmul_by(kind.kernel, of, a.view, b.view, {.alpha = alpha, .bias = bias_view}, workspace.data());
        }
        for (std::size_t n = 0; n < c.data.size(); ++n) {
          ASSERT_EQ(found.data[n].bits, Bfloat16(c.data[n]).bits)
              << describe(one) << " by " << kind.name << " at " << n;
        }
      }
    }
  }
}

// An activation's argument and result; its derivative times the sums, and the sums of their columns; and a residual.
// Each equals the same operation after the matmul.
TEST(MatmulBf16, WritesWhatFollowsAProductAsThatWould) {
  const Kernels& on = kernels(Device{});
  for (const Kind& kind : bf16_kinds()) {
    for (const Case& one : {Case{1, 45, 51, 67, false, true}, Case{1, 300, 96, 64}, Case{1, 70, 33, 0},
                            Case{1, 400, 130, 1100, true, false}}) {
      SCOPED_TRACE(describe(one) + " by " + kind.name);
      Matrices a(1, 1, one.m, one.k, one.transpose_a, 0), b(2, 1, one.k, one.n, one.transpose_b, 0);
      Matrices bias(3, 1, 1, one.n, false, 0), before(4, 1, one.m, one.n, false, 0), c(5, 1, one.m, one.n, false, 0);
      const View bias_view = bias_of(bias.data, one.n);
      const auto product = [&](const View& result, const Epilogue& epilogue) {
        const Workspace workspace(cpu::matmul_workspace_by(kind.kernel, result, a.view), {});
        cpu::matmul_by(kind.kernel, result, a.view, b.view, epilogue, workspace.data());
      };
      product(c.view, {.alpha = 0.5, .bias = bias_view});
      const std::vector<float> sums = c.data;
      product(c.view, {.alpha = 0.5, .bias = bias_view, .residual = before.view});
      for (std::size_t n = 0; n < sums.size(); ++n) {
        EXPECT_NEAR(c.data[n], sums[n] + before.data[n], 0x1p-22 * (std::abs(sums[n]) + std::abs(before.data[n]) + 4));
      }
      c.data = sums;
      const auto bits = [](const Bf16Scope& x) {
        std::vector<std::uint16_t> all;
        for (const Bfloat16 number : x.data) all.push_back(number.bits);
        return all;
      };
      for (const UnaryOp op : {UnaryOp::relu, UnaryOp::gelu, UnaryOp::gelu_tanh, UnaryOp::silu}) {
        const Bf16Scope argument(c), empty(before);
        Bf16Scope expected(before), result(before), kept(before);
        on.unary(op, 0, expected.view, argument.view);
        Epilogue end{.alpha = 0.5, .bias = bias_view, .activation = Epilogue::Activation::apply, .op = op};
        product(result.view, end);
        EXPECT_EQ(bits(result), bits(expected));
        end.argument = kept.view;
        product(result.view, end);
        EXPECT_EQ(bits(result), bits(expected));
        EXPECT_EQ(bits(kept), bits(argument));

        // The derivative at other numbers, also in their place.
        Bf16Scope at(before);
        Matrices wide_at(4, 1, one.m, one.n, false, 0), d(5, 1, one.m, one.n, false, 0);
        for (float& x : wide_at.data) x = rounded(x);
        product(d.view, {.alpha = 0.5});
        const std::vector<float> factors = d.data;
        on.unary_backward(op, 0, d.view, d.view, wide_at.view);
        std::vector<float> column_sums(static_cast<std::size_t>(one.n), NAN);
        for (const bool in_place : {false, true}) {
          Bf16Scope found(before);
          product(in_place ? at.view : found.view, {.alpha = 0.5,
                                                    .activation = Epilogue::Activation::derivative,
                                                    .op = op,
                                                    .argument = at.view,
                                                    .column_sums = bias_of(column_sums, one.n)});
          const Bf16Scope& of = in_place ? at : found;
          for (std::size_t n = 0; n < d.data.size(); ++n) {
            // Another order of two factors, half of the last f32 place of each, may round to the next bf16 number. So
            // may the error of GELU's derivative (core/cpu/matmul/gelu_piecewise.hpp).
            const float short_of = op == UnaryOp::gelu ? 1.5e-6F * std::abs(factors[n]) : 0.0F;
            EXPECT_NEAR(static_cast<float>(of.data[n]), d.data[n], std::abs(d.data[n]) * 0x1.01p-8 + short_of) << n;
          }
          for (std::int64_t j = 0; j < one.n; ++j) {
            double sum = 0, size = 0;
            for (std::int64_t i = 0; i < one.m; ++i) {
              sum += static_cast<double>(d.at(0, i, j));
              size += std::abs(static_cast<double>(d.at(0, i, j)));
            }
            EXPECT_NEAR(column_sums[static_cast<std::size_t>(j)], sum, size * 100 * 0x1p-24) << j;
          }
        }
      }
    }
  }
}

TEST(MatmulBf16, ScalesAndAddsAtTheEnd) {
  expect_order({1, 25, 40, 70, false, true, false, 2, true, 0.3});
  expect_order({1, 25, 40, 1100, false, true, false, 0, true});
  expect_order({1, 25, 40, 70, true, false, false, 2, false, 0.125, true});
  expect_order({5, 20, 33, 1100, false, false, false, 2, false, -1.5, true});
}

// Those of a weight's gradient; the parts are whole pairs of 16.
TEST(MatmulBf16, CutsLongSumsIntoPartsByTheShape) {
  expect_order({1, 20, 40, 4096, true, false}, 4, 1024);
  expect_order({1, 20, 40, 3000, true, false, false, 0, false, 1, true}, 2, 1504);
}

TEST(MatmulBf16, SameBitsForAnyThreadCount) {
  const int threads = thread_count();
  for (const Case& one :
       {Case{1, 300, 200, 100, false, true}, Case{6, 90, 70, 40}, Case{1, 40, 30, 5000, true, false}}) {
    Matrices a(1, one.batch, one.m, one.k, one.transpose_a, 0), b(2, one.batch, one.k, one.n, one.transpose_b, 0);
    Matrices first(3, one.batch, one.m, one.n, false, 0);
    for (const int count : {1, 2, 3}) {
      set_thread_count(count);
      Matrices c(3, one.batch, one.m, one.n, false, 0);
      multiply(one, a, b, {}, c, cpu::bf16_microkernel());
      if (count == 1) first.data = c.data;
      EXPECT_EQ(c.data, first.data) << describe(one) << " by " << count;
    }
  }
  set_thread_count(threads);
}

// Infinities, NaN and subnormal numbers; a product of two small numbers as well.
TEST(MatmulBf16, RoundsOddNumbersAlikeOnEveryKind) {
  const std::vector<float> odd{INFINITY, -INFINITY, NAN,         3.4e38F,     1e-40F,
                               -1e-40F,  1e-30F,    1.00390625F, 1.01171875F, -0.0F};
  const auto count = static_cast<std::int64_t>(odd.size());
  std::vector<std::vector<float>> results;
  const std::vector<Kind> all = bf16_kinds();
  for (const Kind& kind : all) {
    Matrices a(1, 1, count, 1, false, 0), b(1, 1, 1, count, false, 0), c(1, 1, count, count, false, 0);
    a.data = b.data = odd;
    a.view.data = a.data.data();
    b.view.data = b.data.data();
    multiply({1, count, count, 1}, a, b, {}, c, *kind.kernel);
    results.push_back(c.data);
    for (std::size_t n = 0; n < c.data.size(); ++n) {
      const float x = c.data[n], y = results[0][n];
      EXPECT_TRUE(x == y || (std::isnan(x) && std::isnan(y))) << kind.name << " " << n << ": " << x << ", not " << y;
      EXPECT_FALSE(std::fpclassify(x) == FP_SUBNORMAL) << kind.name;
    }
  }
}

// The kernel of the table, in this precision: also transposed results with a bias on each of their columns.
TEST(MatmulBf16, IsWhatMatmulDoesInThisPrecision) {
  for (const bool transpose_c : {false, true}) {
    Matrices a(1, 1, 30, 50, false, 0), b(2, 1, 50, 20, false, 0), bias(3, 1, 1, 20, false, 0);
    Matrices c(4, 1, 30, 20, transpose_c, 0), in_f32(4, 1, 30, 20, transpose_c, 0);
    const View bias_view = bias_of(bias.data, 20);
    const auto run = [&](Matrices& result) {
      const Workspace workspace(kernels(Device{}).matmul_workspace(result.view, a.view), {});
      kernels(Device{}).matmul(result.view, a.view, b.view, {.bias = bias_view}, workspace.data());
    };
    set_matmul_precision(MatmulPrecision::bf16);
    run(c);
    set_matmul_precision(MatmulPrecision::f32);
    for (float& x : a.data) x = rounded(x);
    for (float& x : b.data) x = rounded(x);
    run(in_f32);
    double largest = 0;
    for (std::size_t n = 0; n < c.data.size(); ++n) {
      largest = std::max(largest, static_cast<double>(std::abs(c.data[n] - in_f32.data[n])));
    }
    EXPECT_LT(largest, 50 * 0x1p-24 * 16) << transpose_c;  // only the order of the sums differs
  }
}

TEST(MatmulBf16, TellsWhatItRunsOn) {
  const Bf16Instructions found = bf16_instructions();
  EXPECT_TRUE(found.name == "AMX" ? found.why_not_more.empty() : !found.why_not_more.empty()) << found.name;
}

}  // namespace tally::matmul_bf16_test
