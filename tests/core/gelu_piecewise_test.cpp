// GELU of bf16 numbers to bf16, compared with libm in double, for every argument.
#include "core/cpu/matmul/gelu_piecewise.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tally::gelu_piecewise_test {

using functors::GeluPiecewise;

template <class F>
void for_each_bf16(F&& f) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) f(std::bit_cast<float>(bits << 16));
}

double normal_cdf(double x) { return 0.5 * std::erfc(-x * std::sqrt(0.5)); }

TEST(GeluPiecewise, IsAsNearAsItSays) {
  int seen = 0;
  for_each_bf16([&](float x) {
    if (!std::isfinite(x)) return;
    ++seen;
    const double exact = static_cast<double>(x), cdf = normal_cdf(exact);
    const double density = std::exp(-exact * exact / 2) / std::sqrt(2 * std::acos(-1.0));
    // Two roundings of f32, plus the error of a cubic, max |f''''| (h/2)^4 / 192. Its knots are h = 3/16 apart, and the
    // largest fourth derivatives are 0.56 for Phi and 2.9 for Phi + x phi.
    const double size = std::min(std::abs(exact), 6.0), h = 0.1875, cubic = std::pow(h / 2, 4) / 192;
    EXPECT_NEAR(GeluPiecewise{}(x), exact * cdf, (0x1p-23 * std::abs(exact)) + 0.56 * cubic * size) << x;
    EXPECT_NEAR(GeluPiecewise{}.derivative(x), cdf + exact * density, 0x1p-22 + 2.9 * cubic) << x;
  });
  EXPECT_EQ(seen, 0x10000 - 2 * 0x80);
}

TEST(GeluPiecewise, HasItsLimits) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(GeluPiecewise{}(infinity), infinity);
  EXPECT_EQ(GeluPiecewise{}(-infinity), 0.0F);
  EXPECT_EQ(GeluPiecewise{}(-100.0F), 0.0F);
  EXPECT_EQ(GeluPiecewise{}.derivative(infinity), 1.0F);
  EXPECT_EQ(GeluPiecewise{}.derivative(-infinity), 0.0F);
  for_each_bf16([](float x) {
    if (!std::isnan(x)) return;
    EXPECT_TRUE(std::isnan(GeluPiecewise{}(x)));
    EXPECT_TRUE(std::isnan(GeluPiecewise{}.derivative(x)));
  });
}

// Vectors use one look-up instruction if the processor has one.
template <class V>
void expect_lanes_alike() {
  constexpr std::size_t lanes = sizeof(V) / sizeof(float);
  V x{};
  std::size_t lane = 0;
  for_each_bf16([&](float number) {
    x[lane] = number;
    lane = (lane + 1) % lanes;
    if (lane != 0) return;
    const V y = GeluPiecewise{}(x), d = GeluPiecewise{}.derivative(x);
    for (std::size_t l = 0; l < lanes; ++l) {
      const float alone = GeluPiecewise{}(x[l]), d_alone = GeluPiecewise{}.derivative(x[l]);
      if (std::isnan(alone)) continue;
      ASSERT_EQ(y[l], alone) << x[l];
      ASSERT_EQ(d[l], d_alone) << x[l];
    }
  });
}
TEST(GeluPiecewise, IsAlikeInEveryLane) {
  expect_lanes_alike<Vector<float, 16>>();
  expect_lanes_alike<Vector<float, 64>>();
}

}  // namespace tally::gelu_piecewise_test
