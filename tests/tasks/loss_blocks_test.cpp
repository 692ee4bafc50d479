// The uncertainty of a text's loss: parts, and the error of their mean.
#include "tasks/evaluation/evaluate.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace tally::testing::loss_blocks_test {

constexpr std::int32_t end_of_text = 7;

LossBlocks count(std::int64_t documents, std::int64_t tokens_each) {
  LossBlockCounter counter(end_of_text);
  for (std::int64_t d = 0; d < documents; ++d) {
    for (std::int64_t t = 0; t < tokens_each; ++t) {
      counter.add(t + 1 == tokens_each ? end_of_text : 1, static_cast<double>(d));
    }
  }
  return counter.blocks();
}

TEST(LossBlocks, AreDocumentsWithTheirEnds) {
  const LossBlocks blocks = count(20, 3);
  ASSERT_EQ(blocks.tokens, std::vector<std::int64_t>(20, 3));
  EXPECT_EQ(blocks.nats[0], 0);
  EXPECT_EQ(blocks.nats[19], 57);
  EXPECT_EQ(blocks.mean(), 9.5);
}

TEST(LossBlocks, OfFewDocumentsAreStretches) {
  const LossBlocks blocks = count(2, 10'450);
  EXPECT_EQ(blocks.tokens, (std::vector<std::int64_t>{10'000, 10'000, 900}));
  EXPECT_EQ(blocks.nats, (std::vector<double>{0, 9'550, 900}));
  EXPECT_EQ(count(19, 1100).tokens, std::vector<std::int64_t>(19, 1100)) << "those would be fewer still";
}

TEST(LossBlocks, OfManyDocumentsNeighboursAreJoined) {
  EXPECT_EQ(count(1000, 2).nats.size(), 1000u);
  const LossBlocks blocks = count(2001, 2);
  ASSERT_EQ(blocks.nats.size(), 501u);
  EXPECT_EQ(blocks.tokens.front(), 8);
  EXPECT_EQ(blocks.nats.front(), 2 * (0 + 1 + 2 + 3));
  EXPECT_EQ(blocks.tokens.back(), 2);
}

// For equal parts it is the standard error of a mean. For unequal parts, Python gives:
//   n=[2., 4, 9]; t=[1, 4, 5]; m=sum(n)/sum(t); (1.5*sum((a-m*b)**2 for a,b in zip(n,t)))**.5/sum(t)
TEST(LossBlocks, StandardError) {
  EXPECT_NEAR(*standard_error({{2, 4, 9}, {1, 1, 1}}), std::sqrt((9 + 1 + 16) / 2.0 / 3), 1e-15);
  EXPECT_NEAR(*standard_error({{2, 4, 9}, {1, 4, 5}}), 0.3122498999199199, 1e-15);
  EXPECT_FALSE(standard_error({{2}, {1}}).has_value());
  EXPECT_FALSE(standard_error({}).has_value());
}

}  // namespace tally::testing::loss_blocks_test
