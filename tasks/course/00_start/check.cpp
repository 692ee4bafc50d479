// The test of exercise 0.
#include <gtest/gtest.h>

#include <span>
#include <vector>

double mean_of(std::span<const double> x);

namespace tally {
namespace {

TEST(MeanOf, SeveralNumbers) { EXPECT_EQ(mean_of(std::vector<double>{1, 2, 3, 4}), 2.5); }

TEST(MeanOf, NoNumbers) { EXPECT_EQ(mean_of({}), 0); }

}  // namespace
}  // namespace tally
