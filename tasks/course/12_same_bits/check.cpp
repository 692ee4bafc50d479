// The test of exercise 12.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "autograd/ops.hpp"

std::vector<double> dropped(const std::vector<double>& x, std::uint64_t first, double rate,
                            const tally::RandomStream& stream);

namespace tally {
namespace {

const RandomStream stream{.seed = 3, .stream = 4, .step = 5};

TEST(Dropped, EqualsTheLibrary) {
  const std::vector<double> ones(100, 1.0);
  EXPECT_EQ(dropped(ones, 0, 0.25, stream), dropout(Tensor::from(ones, {100}), 0.25, stream).to_vector<double>());
}

TEST(Dropped, DoesNotDependOnWhoComputesAPart) {
  const std::vector<double> x(100, 2.0), whole = dropped(x, 0, 0.5, stream);
  for (const std::int64_t cut : {1, 30, 67}) {
    std::vector<double> parts = dropped({x.begin(), x.begin() + cut}, 0, 0.5, stream);
    for (const double element : dropped({x.begin() + cut, x.end()}, static_cast<std::uint64_t>(cut), 0.5, stream))
      parts.push_back(element);
    EXPECT_EQ(parts, whole);
  }
}

TEST(Dropped, DrawsOtherNumbersAtTheNextStep) {
  const std::vector<double> x(100, 2.0);
  EXPECT_NE(dropped(x, 0, 0.5, stream), dropped(x, 0, 0.5, {.seed = 3, .stream = 4, .step = 6}));
}

}  // namespace
}  // namespace tally
