// Selective copy: the first sequences as text, structure, masks, uniform positions and symbols, errors.
#include <gtest/gtest.h>

#include <map>

#include "tests/tasks/make_task.hpp"

namespace tally::selective_copy_test {

using testing::expect_share;
using testing::make_task;
using testing::Settings;
using testing::text_of;

constexpr std::int32_t blank = 15;
const Settings small{{"non-blanks", "5"}, {"blanks", "4"}, {"dense-blanks", "2"}, {"sparse-blanks", "8"}};

// The expected answer: the prompt without its blanks.
std::vector<std::int32_t> without_blanks(std::vector<std::int32_t> prompt) {
  std::erase(prompt, blank);
  return prompt;
}

TEST(SelectiveCopy, FirstSequencesAreFixed) {
  const auto task = make_task("selective-copy", small);
  EXPECT_EQ(text_of(*task, "train", 0), "CM___AE_HCMAEH");
  EXPECT_EQ(text_of(*task, "in-distribution", 0), "_M_G_N_EHMGNEH");
  EXPECT_EQ(text_of(*task, "ood-dense", 0), "_O_IHHCOIHHC");
  EXPECT_EQ(text_of(*task, "ood-sparse", 0), "___E_LOE___B_ELOEB");
}

TEST(SelectiveCopy, SplitsAreThoseOfThePaper) {
  const auto task = make_task("selective-copy");
  const auto& splits = task->splits();
  ASSERT_EQ(splits.size(), 4u);
  const std::vector<std::string> names{"train", "in-distribution", "ood-dense", "ood-sparse"};
  const std::vector<std::int64_t> counts{0, 1000, 1000, 1000};
  const std::vector<std::int64_t> lengths{768, 768, 640, 1024};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(splits[i].name, names[i]);
    EXPECT_EQ(splits[i].count, counts[i]);
    EXPECT_EQ(splits[i].length, lengths[i]);
    EXPECT_EQ(static_cast<std::int64_t>(task->example(names[i], 0).tokens.size()), lengths[i]);
  }
  EXPECT_EQ(task->max_length(), 1024);
  ASSERT_EQ(task->vocabulary().size(), 16u);
}

TEST(SelectiveCopy, EverySequenceIsAPromptAndItsCopy) {
  for (const Settings& settings : {Settings{}, small, Settings{{"non-blanks", "1"}, {"blanks", "0"}}}) {
    const auto task = make_task("selective-copy", settings);
    testing::expect_well_formed(*task, 20);
    const std::int64_t non_blanks = settings.empty() ? 256 : std::stoll(settings.front().second);
    for (const Split& split : task->splits()) {
      for (std::int64_t index = 0; index < 20; ++index) {
        const std::vector<std::int32_t> tokens = task->example(split.name, index).tokens;
        ASSERT_EQ(static_cast<std::int64_t>(tokens.size()), split.length);
        const std::vector<std::int32_t> prompt{tokens.begin(), tokens.end() - non_blanks};
        const std::vector<std::int32_t> copy{tokens.end() - non_blanks, tokens.end()};
        ASSERT_EQ(without_blanks(prompt), copy) << split.name << " " << index;
      }
    }
  }
}

TEST(SelectiveCopy, TheCopyIsTrainedOnAndScored) {
  const auto task = make_task("selective-copy", small);
  const Example example = task->example("train", 2);
  ASSERT_EQ(example.tokens.size(), 14u);
  for (std::size_t t = 0; t < 14; ++t) {
    const bool predicts_copy = t >= 8 && t <= 12;  // the prompt's last place predicts the first symbol of the copy
    EXPECT_EQ(example.loss_mask[t], predicts_copy) << t;
    EXPECT_EQ(example.score_mask[t], predicts_copy) << t;
    EXPECT_EQ(example.targets[t], t == 13 ? 0 : example.tokens[t + 1]) << t;
  }
}

TEST(SelectiveCopy, SymbolsAndPlacesAreUniform) {
  const auto task = make_task("selective-copy", {{"non-blanks", "2"}, {"blanks", "3"}});
  constexpr int sequences = 20'000;
  std::map<std::string, double> subsets;
  std::map<std::int32_t, double> symbols;
  std::map<std::pair<std::int32_t, std::int32_t>, double> pairs;
  for (std::int64_t index = 0; index < sequences; ++index) {
    const std::vector<std::int32_t> tokens = task->example("train", index).tokens;
    std::string positions;
    for (std::size_t t = 0; t < 5; ++t) positions += tokens[t] == blank ? '_' : 'x';
    ++subsets[positions];
    ++symbols[tokens[5]];
    ++symbols[tokens[6]];
    ++pairs[{tokens[5], tokens[6]}];
  }
  ASSERT_EQ(subsets.size(), 10u);  // 5 over 2
  for (const auto& [positions, count] : subsets) expect_share(count, sequences, 0.1, positions);
  ASSERT_EQ(symbols.size(), 15u);
  for (const auto& [symbol, count] : symbols) expect_share(count, 2 * sequences, 1.0 / 15, std::to_string(symbol));
  // Chi-squared with 224 degrees of freedom: mean 224, standard deviation sqrt(448).
  ASSERT_EQ(pairs.size(), 225u);
  const double expected = sequences / 225.0;
  double chi_squared = 0;
  for (const auto& [pair, count] : pairs) chi_squared += (count - expected) * (count - expected) / expected;
  EXPECT_NEAR(chi_squared, 224, 4 * std::sqrt(448.0));
}

}  // namespace tally::selective_copy_test
