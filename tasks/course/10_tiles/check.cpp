// The test of exercise 10.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

std::array<double, 3> merged(const std::array<double, 3>& a, const std::array<double, 3>& b);

namespace tally {
namespace {

using Group = std::array<double, 3>;

const Group nothing{-std::numeric_limits<double>::infinity(), 0, 0};

// Keys first .. last - 1 at once.
Group softmax_of(const std::vector<double>& s, const std::vector<double>& v, std::size_t first, std::size_t last) {
  double m = s[first], z = 0, sum = 0;
  for (std::size_t j = first; j < last; ++j) m = std::max(m, s[j]);
  for (std::size_t j = first; j < last; ++j) {
    z += std::exp(s[j] - m);
    sum += std::exp(s[j] - m) * v[j];
  }
  return {m, z, sum / z};
}

void expect_near(const Group& group, const Group& wanted) {
  EXPECT_EQ(group[0], wanted[0]);
  EXPECT_NEAR(group[1], wanted[1], 1e-12);
  EXPECT_NEAR(group[2], wanted[2], 1e-12);
}

TEST(Merged, EqualsTheSoftmaxOverAllKeys) {
  const std::vector<double> s{0.5, 3, -1, 2, 2.5, -4}, v{1, -2, 5, 0.5, 3, 7};
  for (std::size_t cut = 1; cut < s.size(); ++cut)
    expect_near(merged(softmax_of(s, v, 0, cut), softmax_of(s, v, cut, 6)), softmax_of(s, v, 0, 6));
}

TEST(Merged, DoesNotOverflow) {
  expect_near(merged({1000, 1, 5}, {-1000, 1, 7}), {1000, 1, 5});
  expect_near(merged({-1000, 2, 5}, {1000, 4, 7}), {1000, 4, 7});
}

TEST(Merged, TakesGroupsWithoutKeys) {
  const Group one{2, 1.5, 4};
  EXPECT_EQ(merged(one, nothing), one);
  EXPECT_EQ(merged(nothing, one), one);
  EXPECT_EQ(merged(nothing, nothing), nothing);
}

}  // namespace
}  // namespace tally
