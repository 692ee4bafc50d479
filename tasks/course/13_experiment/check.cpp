// The test of exercise 13.
#include <gtest/gtest.h>

#include <vector>

double permutation_p(const std::vector<double>& a, const std::vector<double>& b);

namespace tally {
namespace {

TEST(PermutationP, OfGroupsThatDoNotOverlap) {
  // Two of 20 choices are as far apart: this one, and the same with the groups exchanged.
  EXPECT_DOUBLE_EQ(permutation_p({1, 2, 3}, {10, 11, 12}), 0.1);
  EXPECT_DOUBLE_EQ(permutation_p({10, 11, 12, 13}, {1, 2, 3, 4}), 2.0 / 70);
}

TEST(PermutationP, OfEqualMeans) { EXPECT_DOUBLE_EQ(permutation_p({1, 4}, {2, 3}), 1); }

TEST(PermutationP, CountsTies) {
  EXPECT_DOUBLE_EQ(permutation_p({0, 0}, {0, 3}), 1);
  EXPECT_DOUBLE_EQ(permutation_p({5}, {1, 2, 3}), 0.25);
}

}  // namespace
}  // namespace tally
