// The test of exercise 9.
#include <gtest/gtest.h>

#include <vector>

#include "autograd/ops.hpp"

std::vector<double> position_terms(const std::vector<double>& gates, const std::vector<double>& table);

namespace tally {
namespace {

TEST(PositionTerms, CountTokensWhenAllGatesAreOne) {
  // The own token has position 1, so that entry 0 is not read.
  EXPECT_EQ(position_terms({1, 1, 1}, {50, 10, 20, 30, 40}), (std::vector<double>{30, 20, 10}));
}

TEST(PositionTerms, CountWhatTheGatesLetCount) {
  EXPECT_EQ(position_terms({0, 1, 0, 0, 1, 0}, {7, 8, 9}), (std::vector<double>{9, 9, 8, 8, 8, 7}));
}

TEST(PositionTerms, InterpolateBetweenEntries) {
  EXPECT_EQ(position_terms({0.5, 0.25, 0.5}, {0, 4, 16}), (std::vector<double>{7, 3, 2}));
}

TEST(PositionTerms, KeepTheLastEntryBeyondTheTable) {
  EXPECT_EQ(position_terms({1, 1, 1, 1}, {0, 1, 4}), (std::vector<double>{4, 4, 4, 1}));
}

TEST(PositionTerms, AgreeWithTheLibrary) {
  const std::vector<double> gates{0.9, 0.3, 0.8, 0.1, 0.7}, table{0.5, -1, 2, 0.25};
  const Tensor positions = cumsum(Tensor::from(gates, {5}), /*reverse=*/true);
  const std::vector<double> wanted = interpolate(Tensor::from(table, {4}), positions).to_vector<double>();
  const std::vector<double> terms = position_terms(gates, table);
  ASSERT_EQ(terms.size(), wanted.size());
  for (std::size_t j = 0; j < wanted.size(); ++j) EXPECT_NEAR(terms[j], wanted[j], 1e-12);
}

}  // namespace
}  // namespace tally
