// Philox against the known answers of its authors (Random123, kat_vectors), and the random kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "core/device/kernels.hpp"
#include "core/math/random_normal.hpp"
#include "tests/core/kernel_array.hpp"

namespace tally::kernel_random_test {

TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, 0, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32_10({ones, ones, ones, ones}, ones, ones),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, StreamPutsElementsStepStreamAndSeedIntoCounterAndKey) {
  const RandomStream stream{.seed = 0x299f31d0a4093822, .stream = 0x03707344, .step = 0x13198a2e};
  EXPECT_EQ(stream.block(0x85a308d3243f6a88), (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ(stream.bits(4 * 0x05a308d3243f6a88 + 3), stream.block(0x05a308d3243f6a88)[3]);
}

TEST(Philox, BelowIsUniformWithoutBias) {
  Rng rng(RandomStream{.seed = 3});
  std::array<int, 7> counts{};
  for (int i = 0; i < 70'000; ++i) ++counts[rng.below(7)];
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 500);  // 5 standard deviations
}

constexpr RandomStream stream{.seed = 42, .stream = 7, .step = 3};
// More than a tile, and a remainder that fills neither a share nor a block of four.
constexpr std::int64_t many = 40'003;

TEST(RandomKernel, UniformElementComesFromItsElementOfTheStream) {
  Array<float> y({many});
  cpu::random_uniform(y.view, stream, 0.0, 1.0);
  for (std::int64_t n = 0; n < many; ++n) {
    ASSERT_EQ(y.at(n), uniform_from_bits(stream.bits(static_cast<std::uint64_t>(n)))) << n;
  }
  Array<double> z({many});
  cpu::random_uniform(z.view, stream, -2.0, 4.0);
  for (std::int64_t n = 0; n < many; ++n) ASSERT_DOUBLE_EQ(z.at(n), -2.0 + 6.0 * static_cast<double>(y.at(n)));
}

TEST(RandomKernel, NormalIsBoxMullerOfTwoElements) {
  Array<double> y({many});
  cpu::random_normal(y.view, stream, 1.5, 2.0);
  for (std::int64_t n = 0; n < many; ++n) {
    const auto element = static_cast<std::uint64_t>(n);
    const double u = (stream.bits(2 * element) + 1.0) / 4294967296.0;
    const double v = (stream.bits(2 * element + 1) + 1.0) / 4294967296.0;
    ASSERT_NEAR(y.at(n), 1.5 + 2.0 * std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::acos(-1.0) * v), 1e-12);
  }
}

// Against long double, at the ends, where quadrants and octaves meet, and at random.
TEST(RandomKernel, LogarithmAndCosineAreExactToTwoUnits) {
  std::vector<std::uint32_t> words{0, 1, 2, 0xFFFFFFFFu, 0xFFFFFFFEu, 0xFFFFFF00u, 0xB504F333u, 0xB504F334u};
  for (std::uint32_t eighth = 1; eighth < 8; ++eighth) {
    for (const std::uint32_t beside : {0xFFFFFFFEu, 0xFFFFFFFFu, 0u, 1u}) words.push_back((eighth << 29) + beside);
  }
  for (std::uint64_t n = 0; n < 100'000; ++n) words.push_back(stream.bits(n));
  constexpr double two_units = 2 * std::numeric_limits<double>::epsilon();
  for (const std::uint32_t word : words) {
    const double u = detail::positive_uniform(word);
    const auto exact = static_cast<long double>(u);
    const long double log = std::log(exact), cosine = std::cos(2 * std::numbers::pi_v<long double> * exact);
    ASSERT_NEAR(detail::log_of_uniform(u), static_cast<double>(log), two_units * std::abs(static_cast<double>(log)))
        << u;
    ASSERT_NEAR(detail::cos_of_turn(u), static_cast<double>(cosine), two_units) << u;
  }
}

TEST(RandomKernel, NormalHasTheMomentsOfTheNormalDistribution) {
  constexpr std::int64_t count = 1'000'000;
  Array<float> y({count});
  cpu::random_normal(y.view, stream, 0.0, 1.0);
  double first = 0, second = 0, third = 0, fourth = 0, beyond_two = 0;
  for (std::int64_t n = 0; n < count; ++n) {
    const double x = y.at(n);
    first += x / count;
    second += x * x / count;
    third += x * x * x / count;
    fourth += x * x * x * x / count;
    beyond_two += (std::abs(x) > 2.0 ? 1.0 : 0.0) / count;
  }
  // Five standard errors each: sqrt of 1, 2, 15, 96 and p(1-p) over the count.
  EXPECT_NEAR(first, 0.0, 5e-3);
  EXPECT_NEAR(second, 1.0, 7.1e-3);
  EXPECT_NEAR(third, 0.0, 1.94e-2);
  EXPECT_NEAR(fourth, 3.0, 4.9e-2);
  EXPECT_NEAR(beyond_two, 0.0455003, 1.05e-3);
}

template <class T>
class DropoutEdge : public ::testing::Test {};
using Floats = ::testing::Types<float, double>;
TYPED_TEST_SUITE(DropoutEdge, Floats);

// A rate just above the number of an element drops it, one just below keeps it.
TYPED_TEST(DropoutEdge, LiesAtTheNumberOfTheElement) {
  constexpr std::int64_t count = 64;
  Array<TypeParam> x({count}), y({count});
  const auto dropped = [&](std::int64_t n, double rate) {
    cpu::dropout(y.view, x.view, rate, stream);
    return y.at(n) == TypeParam{0};
  };
  for (std::int64_t n = 0; n < count; ++n) {
    const double number = static_cast<double>(uniform_from_bits(stream.bits(static_cast<std::uint64_t>(n))));
    if (number < 0.05 || number > 0.95) continue;
    // Half of the last digit that numbers have.
    EXPECT_TRUE(dropped(n, number + 0x1p-25)) << n;
    EXPECT_FALSE(dropped(n, number)) << n;
    EXPECT_FALSE(dropped(n, number - 0x1p-25)) << n;
  }
}

}  // namespace tally::kernel_random_test
