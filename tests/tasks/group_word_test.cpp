// Group words: the groups, derived from the task's answers; products; the error rates of baselines.
#include <gtest/gtest.h>

#include <array>

#include "tests/tasks/check_numbers.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally::group_word_test {

using testing::make_task;
using testing::Mean;

// The multiplication table [m, m], from running products times next elements. Every entry occurs, and repeated entries
// agree.
std::vector<std::vector<std::int32_t>> table_of(const std::string& group, std::size_t order) {
  const auto task = make_task("group-word", {{"group", group}, {"length", "200"}});
  EXPECT_EQ(task->vocabulary().size(), order + 1);
  std::vector<std::vector<std::int32_t>> table(order, std::vector<std::int32_t>(order, -1));
  std::size_t known = 0;
  for (std::int64_t index = 0; known < order * order && index < 3000; ++index) {
    const Example example = task->example("train", index);
    std::int32_t before = 0;
    for (std::size_t t = 1; t < example.tokens.size(); ++t) {
      std::int32_t& entry = table[static_cast<std::size_t>(before)][static_cast<std::size_t>(example.tokens[t])];
      known += entry < 0;
      EXPECT_TRUE(entry < 0 || entry == example.targets[t]) << group;
      before = entry = example.targets[t];
    }
  }
  EXPECT_EQ(known, order * order) << group;
  return table;
}

TEST(GroupWord, TheGroupsAreThose) {
  struct Row {
    const char* name;
    std::size_t order, commuting;
    std::array<int, 6> of_order;
    std::int64_t squares, last_times_last_but_one;
  };
  for (const Row& row : {Row{"a5", 60, 60 * 5, {1, 15, 20, 0, 24, 0}, 1321, 24},
                         {"s5", 120, 120 * 7, {1, 25, 20, 30, 24, 20}, 5384, 24},
                         {"z60", 60, 60 * 60, {1, 1, 2, 2, 4, 2}, 1740, 57},
                         {"a4xz5", 60, 60 * 20, {1, 3, 8, 0, 4, 0}, 1220, 2},
                         {"s3", 6, 18, {1, 3, 2, 0, 0, 0}, 7, 2}}) {
    const auto table = table_of(row.name, row.order);
    std::size_t commuting = 0;
    std::array<int, 6> of_order{};
    std::int64_t squares = 0;
    for (std::size_t a = 0; a < row.order; ++a) {
      for (std::size_t b = 0; b < row.order; ++b) commuting += table[a][b] == table[b][a];
      squares += table[a][a];
      std::size_t power = a, order = 1;
      for (; power != 0; ++order) power = static_cast<std::size_t>(table[power][a]);
      if (order <= 6) ++of_order[order - 1];
    }
    EXPECT_EQ(commuting, row.commuting) << row.name;
    EXPECT_EQ(of_order, row.of_order) << row.name;
    EXPECT_EQ(squares, row.squares) << row.name;
    EXPECT_EQ(table[row.order - 1][row.order - 2], row.last_times_last_but_one) << row.name;
  }
}

TEST(GroupWord, EveryElementIsScoredAndTheStartIsNot) {
  const auto task = make_task("group-word", {{"group", "s3"}, {"length", "8"}});
  EXPECT_EQ(task->breakdown(), "t");
  EXPECT_TRUE(task->scores_sequences());
  for (const Split& split : task->splits()) {
    const Example example = task->example(split.name, 1);
    ASSERT_EQ(example.tokens.size(), split.name == "ood-long" ? 17u : 9u);
    EXPECT_EQ(example.tokens[0], 6);
    for (std::size_t t = 0; t < example.tokens.size(); ++t) {
      EXPECT_EQ(example.score_mask[t], t > 0);
      EXPECT_EQ(example.loss_mask[t], t > 0);
      EXPECT_EQ(example.keys[t], static_cast<std::int32_t>(t));
    }
  }
  EXPECT_EQ(task->encode("^ 3:3 1:5 5"), (std::vector<std::int32_t>{6, 3, 1, 5}));
}

TEST(GroupWord, MixTrainsOnAllLengths) {
  const auto task = make_task("group-word", {{"group", "s3"}, {"length", "5"}, {"mix", "true"}});
  std::array<double, 6> of_length{};
  testing::for_each_example(*task, "train", 2000, [&](const Example& e) { ++of_length[e.tokens.size() - 1]; });
  for (std::size_t n = 2; n <= 5; ++n) testing::expect_share(of_length[n], 2000, 0.25, std::to_string(n));
  EXPECT_EQ(task->example("in-distribution", 0).tokens.size(), 6u);
}

// A guess has error 1 - 1/m for any length of the word.
TEST(GroupWord, AnswersAreUniformAtEveryStep) {
  constexpr std::int64_t words = 3000;
  for (const auto& [group, order] : {std::pair<const char*, std::size_t>{"s3", 6}, {"a5", 60}}) {
    const auto task = make_task("group-word", {{"group", group}, {"length", "8"}, {"eval-count", "3000"}});
    std::vector<std::vector<double>> of(9, std::vector<double>(order));
    testing::for_each_example(*task, "in-distribution", words, [&](const Example& example) {
      for (std::size_t t = 1; t <= 8; ++t) ++of[t][static_cast<std::size_t>(example.targets[t])];
    });
    for (std::size_t t = 1; t <= 8; ++t) {
      // Chi-squared with m - 1 degrees of freedom, within four standard deviations.
      const double expected = static_cast<double>(words) / static_cast<double>(order);
      double chi_squared = 0;
      for (const double count : of[t]) chi_squared += (count - expected) * (count - expected) / expected;
      const double freedom = static_cast<double>(order - 1);
      EXPECT_NEAR(chi_squared, freedom, 4 * std::sqrt(2 * freedom)) << group << " t " << t;
    }
  }
}

TEST(GroupWord, RepeatingTheLastSymbolIsRightAsOftenAsTheLawSays) {
  const auto right = [](const char* group, const char* length, double expected) {
    const auto task = make_task("group-word", {{"group", group}, {"length", length}});
    Mean share;
    testing::for_each_example(*task, "train", 4000, [&](const Example& example) {
      double equal = 0;
      for (std::size_t t = 1; t < example.tokens.size(); ++t) equal += example.tokens[t] == example.targets[t];
      share.add(equal / static_cast<double>(example.tokens.size() - 1));
    });
    share.expect_exact(expected, group);
  };
  right("a5", "8", (1 + 7.0 / 60) / 8);
  right("s3", "16", (1 + 15.0 / 6) / 16);
}

}  // namespace tally::group_word_test
