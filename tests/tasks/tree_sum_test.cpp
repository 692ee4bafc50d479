// Which additions a sum of so many terms makes.
#include "tasks/tree_sum.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "core/error.hpp"

namespace tally {
namespace {

// Of these no two sums in another order are the same number.
const std::vector<float> terms{1.1F, 2.3e-7F, -1.0999F, 3.7e-8F, 0.31F, 1e-7F, 7.7F, -0.77e-6F};

float sum_of(std::size_t count) {
  TreeSum sum;
  for (std::size_t n = 0; n < count; ++n) sum.add({Tensor::from(std::vector<float>{terms[n]}, {1})});
  return static_cast<float>(sum.take().at(0).item());
}

TEST(TreeSum, AddsNeighboursFirst) {
  const auto& x = terms;
  EXPECT_EQ(sum_of(1), x[0]);
  EXPECT_EQ(sum_of(2), x[0] + x[1]);
  EXPECT_EQ(sum_of(3), (x[0] + x[1]) + x[2]);
  EXPECT_EQ(sum_of(4), (x[0] + x[1]) + (x[2] + x[3]));
  EXPECT_EQ(sum_of(7), ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + x[6]));
  EXPECT_EQ(sum_of(8), ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7])));
  EXPECT_NE(sum_of(4), ((x[0] + x[1]) + x[2]) + x[3]);
}

// A parameter that a part of the batch does not reach has no gradient there.
TEST(TreeSum, UndefinedTermsAreZeros) {
  TreeSum sum;
  const auto number = [](float value) { return Tensor::from(std::vector<float>{value}, {1}); };
  sum.add({Tensor(), number(1), Tensor()});
  sum.add({number(2), Tensor(), Tensor()});
  sum.add({number(3), number(4), Tensor()});
  const std::vector<Tensor> found = sum.take();
  EXPECT_EQ(found[0].item(), 5);
  EXPECT_EQ(found[1].item(), 5);
  EXPECT_FALSE(found[2].defined());
  EXPECT_THROW(sum.take(), InternalError);
}

}  // namespace
}  // namespace tally
