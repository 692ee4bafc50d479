// Selective copy: the first sequences as text, structure, masks, uniform positions and symbols, errors.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/tasks/make_task.hpp"

namespace tally {
namespace selective_copy_test {

using testing::error_of;
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
  EXPECT_EQ(task->vocabulary().front(), "A");
  EXPECT_EQ(task->vocabulary()[14], "O");
  EXPECT_EQ(task->vocabulary()[15], "_");
}

// D B B C F B F B E with blank B gives D C F F E.
TEST(SelectiveCopy, ThePapersExample) {
  const auto task = make_task("selective-copy", small);
  const std::vector<std::int32_t> prompt = task->encode("D__CF_F_E");
  EXPECT_EQ(prompt, (std::vector<std::int32_t>{3, 15, 15, 2, 5, 15, 5, 15, 4}));
  Example answer;
  answer.tokens = without_blanks(prompt);
  EXPECT_EQ(task->text(answer), "DCFFE");
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

TEST(SelectiveCopy, IsAPureFunction) { testing::expect_pure("selective-copy", small); }

TEST(SelectiveCopy, TrainingFollowsTheSeedEvaluationTheDataSeed) {
  const auto base = make_task("selective-copy", small, 1, 2);
  const auto other_seed = make_task("selective-copy", small, 3, 2);
  const auto other_data = make_task("selective-copy", small, 1, 3);
  EXPECT_NE(text_of(*base, "train", 0), text_of(*other_seed, "train", 0));
  EXPECT_EQ(text_of(*base, "train", 0), text_of(*other_data, "train", 0));
  for (const char* split : {"in-distribution", "ood-dense", "ood-sparse"}) {
    EXPECT_EQ(text_of(*base, split, 0), text_of(*other_seed, split, 0));
    EXPECT_NE(text_of(*base, split, 0), text_of(*other_data, split, 0));
  }
}

// With equal settings, splits and neighbours differ in more than their names: symbols agree one time in fifteen.
TEST(SelectiveCopy, SplitsSeedsAndNeighboursAreIndependent) {
  const Settings settings{{"non-blanks", "20"}, {"blanks", "0"}, {"dense-blanks", "0"}, {"sparse-blanks", "0"}};
  const auto task = make_task("selective-copy", settings, 1, 1);
  const auto next_seed = make_task("selective-copy", settings, 2, 2);
  const auto agreeing = [](const Task& a, const std::string& split_a, const Task& b, const std::string& split_b,
                           std::int64_t shift) {
    double count = 0;
    for (std::int64_t index = 0; index < 500; ++index) {
      const auto left = a.example(split_a, index).tokens;
      const auto right = b.example(split_b, index + shift).tokens;
      for (std::size_t t = 0; t < 20; ++t) count += left[t] == right[t];
    }
    return count;
  };
  const double trials = 500 * 20;
  expect_share(agreeing(*task, "train", *task, "in-distribution", 0), trials, 1.0 / 15, "train, in-distribution");
  expect_share(agreeing(*task, "in-distribution", *task, "ood-dense", 0), trials, 1.0 / 15, "in-distribution, dense");
  expect_share(agreeing(*task, "ood-dense", *task, "ood-sparse", 0), trials, 1.0 / 15, "dense, sparse");
  expect_share(agreeing(*task, "train", *next_seed, "train", 0), trials, 1.0 / 15, "seeds");
  expect_share(agreeing(*task, "train", *task, "train", 1), trials, 1.0 / 15, "neighbours");
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

TEST(SelectiveCopy, MistakesAreNamed) {
  const auto task = make_task("selective-copy", small);
  EXPECT_EQ(error_of([&] { task->encode("AB_P"); }),
            "[encode] symbol 4 is 'P', which is none of A B C D E F G H I J K L M N O _");
  EXPECT_EQ(error_of([&] { task->example("ood-dense", 1000); }),
            "[split] ood-dense has sequences 0 to 999, asked for 1000");
  EXPECT_EQ(error_of([&] { task->example("ood-desne", 0); }),
            "[split] unknown split 'ood-desne'; did you mean 'ood-dense'? Known are train, in-distribution, "
            "ood-dense, ood-sparse");
  EXPECT_EQ(error_of([] {
              make_task("selective-copy", {{"non-blanks", "0"}});
            }),
            "[task] non-blanks must be 1 to 1048576, got '0'");
}

}  // namespace selective_copy_test
}  // namespace tally
