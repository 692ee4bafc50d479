// A rate just above the number of an element drops it, one just below keeps it.
#include <gtest/gtest.h>

#include "core/device/kernels.hpp"
#include "tests/core/kernel_array.hpp"

namespace tally::dropout_edge_test {

template <class T>
class DropoutEdge : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(DropoutEdge, Types);

TYPED_TEST(DropoutEdge, LiesAtTheNumberOfTheElement) {
  constexpr RandomStream stream{.seed = 42, .stream = 7, .step = 3};
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

}  // namespace tally::dropout_edge_test
