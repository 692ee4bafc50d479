// The order of additions in a sum of any number of terms.
#include "tasks/training/tree_sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/error.hpp"

namespace tally::tree_sum_test {

// Sums of these terms in another order give a different number.
const std::vector<float> terms{1.1F, 2.3e-7F, -1.0999F, 3.7e-8F, 0.31F, 1e-7F, 7.7F, -0.77e-6F};

TEST(TreeSum, AddsNeighboursFirst) {
  const auto sum_of = [](std::size_t count) {
    TreeSum sum;
    for (std::size_t n = 0; n < count; ++n) sum.add({Tensor::from(std::vector<float>{terms[n]}, {1})});
    return static_cast<float>(sum.take().at(0).item());
  };
  const auto& x = terms;
  EXPECT_EQ(sum_of(3), (x[0] + x[1]) + x[2]);
  EXPECT_EQ(sum_of(7), ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + x[6]));
  EXPECT_EQ(sum_of(8), ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7])));
  EXPECT_NE(sum_of(4), ((x[0] + x[1]) + x[2]) + x[3]);
}

// A parameter that a part of the batch does not reach has no gradient from it.
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

// A last term given tensor by tensor, in any order, gives the same sum as a whole term.
TEST(TreeSum, OfALastTermThatComesInPieces) {
  for (std::size_t count = 1; count <= 20; ++count) {
    const auto term = [](std::size_t n) {
      const float value = terms[n % terms.size()] * static_cast<float>(n + 1);
      return std::vector<Tensor>{Tensor::from(std::vector<float>{value}, {1}),
                                 n % 3 == 0 ? Tensor() : Tensor::full({1}, value), Tensor()};
    };
    TreeSum whole, pieces;
    for (std::size_t n = 0; n < count; ++n) whole.add(term(n));
    for (std::size_t n = 0; n + 1 < count; ++n) pieces.add(term(n));
    const std::vector<Tensor> expected = whole.take();
    for (const std::size_t i : {2U, 0U, 1U}) {
      const Tensor found = pieces.take_with(i, term(count - 1)[i]);
      ASSERT_EQ(found.defined(), expected[i].defined()) << count;
      if (!found.defined()) continue;
      EXPECT_EQ(found.item(), expected[i].item()) << count;
    }
  }
}

// The sum of the ranks' sums equals a single sum, for any number of terms and ranks.
TEST(TreeSum, OfRanksIsThatOfOne) {
  const auto number = [](std::int64_t n) {
    const float value = terms[static_cast<std::size_t>(n) % terms.size()] * static_cast<float>(n + 1);
    return std::vector<Tensor>{Tensor::from(std::vector<float>{value}, {1})};
  };
  bool order_matters = false;
  for (std::int64_t count = 1; count <= 40; ++count) {
    TreeSum alone;
    float one_by_one = 0;
    for (std::int64_t n = 0; n < count; ++n) {
      alone.add(number(n));
      one_by_one += static_cast<float>(number(n)[0].item());
    }
    const double expected = alone.take()[0].item();
    order_matters |= expected != one_by_one;
    for (std::int64_t ranks = 1; ranks <= 9; ++ranks) {
      TreeSum over_ranks;
      std::int64_t next = 0;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const TreeShare share = tree_share(count, ranks, rank);
        EXPECT_EQ(share.first, std::min(next, count));
        EXPECT_EQ(share.last > share.first, rank < share.ranks);
        next = share.last;
        TreeSum own;
        for (std::int64_t n = share.first; n < share.last; ++n) own.add(number(n));
        if (share.last > share.first) over_ranks.add(own.take());
      }
      EXPECT_EQ(next, count);
      EXPECT_EQ(over_ranks.take()[0].item(), expected) << count << " terms, " << ranks << " ranks";
    }
  }
  EXPECT_TRUE(order_matters);
  EXPECT_EQ(tree_share(8, 4, 3).first, 6);
  EXPECT_EQ(tree_share(7, 2, 1).first, 4);
}

}  // namespace tally::tree_sum_test
