// Counting: the first programs as text, an interpreter that executes them, cutting, errors, check numbers.
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "tests/tasks/check_numbers.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally::counting_test {

using testing::make_task;
using testing::Mean;
using testing::Settings;
using testing::text_of;

const Settings small{{"max-operations", "20"}, {"pass-weight", "5"}};

// The outcome of a program, computed only from its text.
struct Outcome {
  std::int64_t operations = 0;
  std::map<std::string, int> values;
  std::string printed;
  int answer = -1;
  bool legal = true;  // only set variables are incremented and printed, values stay within 0..10, nothing is added
};

Outcome execute(const std::string& text) {
  Outcome result;
  std::istringstream words(text);
  std::string word;
  while (words >> word) {
    if (word == "print") {
      result.legal = result.legal && words >> result.printed >> result.answer && !(words >> word);
      result.legal = result.legal && result.values.count(result.printed) == 1;
      return result;
    }
    ++result.operations;
    if (word == "pass;") continue;
    const std::string variable = word;
    words >> word;
    if (word == "++;") {
      result.legal = result.legal && result.values.count(variable) == 1 && ++result.values[variable] <= 10;
    } else {
      std::string zero, semicolon;
      words >> zero >> semicolon;
      result.legal = result.legal && word == "=" && zero == "0" && semicolon == ";";
      result.values[variable] = 0;
    }
  }
  result.legal = false;  // no question
  return result;
}

TEST(Counting, FirstProgramsAreFixed) {
  const Settings short_programs{{"max-operations", "12"}, {"pass-weight", "5"}};
  const auto task = make_task("counting", short_programs);
  EXPECT_EQ(text_of(*task, "train", 0), "pass; pass; pass; a = 0 ; pass; pass; pass; pass; a ++; pass; print a 1");
  EXPECT_EQ(text_of(*task, "validation", 0),
            "pass; pass; pass; pass; pass; pass; pass; a = 0 ; pass; a ++; a ++; pass; print a 2");
  EXPECT_EQ(text_of(*task, "test", 0),
            "pass; pass; pass; pass; pass; pass; pass; pass; a = 0 ; pass; pass; a ++; print a 1");
  EXPECT_EQ(text_of(*task, "ood-long", 0), "pass; pass; pass; a = 0 ; pass; pass; pass; pass; pass; print a 0");
  EXPECT_EQ(text_of(*task, "ood-short", 0), "pass; pass; a = 0 ; a ++; a ++; a ++; pass; a ++; a ++; pass; print a 5");
  const auto three = make_task("counting", {{"vars", "3"}, {"max-operations", "12"}, {"pass-weight", "0"}});
  EXPECT_EQ(text_of(*three, "train", 0), "a = 0 ; a ++; a ++; b = 0 ; a ++; a ++; b ++; b ++; a ++; c = 0 ; print b 2");
}

TEST(Counting, SplitsAreThoseOfThePaper) {
  const auto one = make_task("counting");
  const std::vector<std::string> names{"train", "validation", "test", "ood-long", "ood-short"};
  ASSERT_EQ(one->splits().size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(one->splits()[i].name, names[i]);
    EXPECT_EQ(one->splits()[i].count, i == 0 ? 10'000 : 1000);
    EXPECT_EQ(one->splits()[i].length, 511);
  }
  const auto three = make_task("counting", {{"vars", "3"}});
  ASSERT_EQ(three->splits().size(), 3u);  // the other two have one variable
  EXPECT_EQ(three->splits().back().name, "test");
}

TEST(Counting, EveryProgramIsLegalAndItsAnswerRight) {
  // Without `pass`, programs often reach an increment that would exceed 10.
  for (const auto& [vars, pass] : {std::pair{"1", "0"}, {"3", "50"}, {"26", "50"}}) {
    const auto task = make_task("counting", {{"vars", vars}, {"pass-weight", pass}, {"max-tokens", "4000"}});
    testing::expect_well_formed(*task, 100);
    for (const Split& split : task->splits()) {
      for (std::int64_t index = 0; index < 300; ++index) {
        const std::string text = text_of(*task, split.name, index);
        const Outcome result = execute(text);
        ASSERT_TRUE(result.legal) << text;
        ASSERT_EQ(result.values.at(result.printed), result.answer) << text;
        ASSERT_GE(result.operations, 3);
        ASSERT_LE(result.operations, 512);
      }
    }
  }
}

TEST(Counting, TheAnswerIsPredictedAndNotFed) {
  const auto task = make_task("counting", small);
  const Example example = task->example("train", 1);
  const std::size_t last = example.tokens.size() - 1;
  EXPECT_EQ(task->vocabulary()[static_cast<std::size_t>(example.tokens[last - 1])], "print");
  for (std::size_t t = 0; t < last; ++t) {
    EXPECT_EQ(example.loss_mask[t], 0);
    EXPECT_EQ(example.score_mask[t], 0);
    EXPECT_EQ(example.targets[t], 0);
  }
  EXPECT_EQ(example.loss_mask[last], 1);
  EXPECT_EQ(example.score_mask[last], 1);
  EXPECT_EQ(example.targets[last], execute(task->text(example)).answer);
  EXPECT_EQ(task->breakdown(), "answer");
  for (std::int64_t index = 0; index < 20; ++index) {
    const Example asked = task->example("ood-short", index);
    EXPECT_EQ(asked.keys.back(), execute(task->text(asked)).answer);
  }
  std::vector<std::int32_t> whole = example.tokens;
  whole.push_back(example.targets[last]);
  EXPECT_EQ(task->encode(task->text(example)), whole);
}

TEST(Counting, LongProgramsLoseTheirBeginning) {
  const Settings whole_settings{{"max-tokens", "4000"}};
  const auto whole = make_task("counting", whole_settings);
  const auto cut = make_task("counting");
  int longer = 0;
  for (std::int64_t index = 0; index < 300; ++index) {
    const Example full = whole->example("train", index);
    const Example kept = cut->example("train", index);
    longer += full.tokens.size() > 511;
    ASSERT_EQ(kept.tokens.size(), std::min<std::size_t>(511, full.tokens.size()));
    ASSERT_TRUE(std::equal(kept.tokens.rbegin(), kept.tokens.rend(), full.tokens.rbegin()));
    ASSERT_EQ(kept.targets.back(), full.targets.back());
    ASSERT_EQ(kept.loss_mask.back(), 1);
    ASSERT_EQ(cut->encode(cut->text(kept)).size(), kept.tokens.size() + 1);
  }
  EXPECT_GT(longer, 10);  // 14% of 300
}

// Programs with few increments recur by chance; programs with twenty or more never do.
TEST(Counting, SplitsShareNoPrograms) {
  const auto task = make_task("counting");
  const std::int32_t increment = task->encode("++;")[0];
  std::map<std::vector<std::int32_t>, std::string> seen;  // program -> split
  for (const Split& split : task->splits()) {
    for (std::int64_t index = 0; index < 1000; ++index) {
      const std::vector<std::int32_t> tokens = task->example(split.name, index).tokens;
      if (std::count(tokens.begin(), tokens.end(), increment) < 20) continue;
      const auto [at, is_new] = seen.emplace(tokens, split.name);
      EXPECT_TRUE(is_new) << split.name << " " << index << " is also in " << at->second;
    }
  }
  EXPECT_GT(seen.size(), 1000u);
}

// Means over 20,000 programs of each setting, compared with the reference generator's means over 400,000.
struct CheckNumbers {
  int vars, pass_weight;
  double operations;      // mean
  double tokens;          // mean of the uncut sequence, question and answer included
  double over_512;        // share of sequences longer than 512 tokens
  double answer_10;       // fraction
  double answer_0;        // share
  double distance;        // mean number of tokens from `print` back to the latest set of the variable printed
  double majority_error;  // error of always answering the most frequent answer
};

class CountingStatistics : public ::testing::TestWithParam<CheckNumbers> {};

TEST_P(CountingStatistics, AgreeWithTheReferenceGenerator) {
  const CheckNumbers& expected = GetParam();
  constexpr std::int64_t programs = 20'000;
  const auto task = make_task("counting", {{"vars", std::to_string(expected.vars)},
                                           {"pass-weight", std::to_string(expected.pass_weight)},
                                           {"train-count", std::to_string(programs)},
                                           {"max-tokens", "4000"}});
  const std::int32_t equals = task->encode("=")[0], increment = task->encode("++;")[0], pass = task->encode("pass;")[0];

  Mean operations, tokens, distance;
  double over_512 = 0;
  std::vector<double> answers(11);
  for (std::int64_t index = 0; index < programs; ++index) {
    const Example example = task->example("train", index);
    const auto& fed = example.tokens;
    double count = 0;
    for (const std::int32_t token : fed) count += token == equals || token == increment || token == pass;
    operations.add(count);
    const std::size_t length = fed.size() + 1;
    tokens.add(static_cast<double>(length));
    over_512 += length > 512;
    ++answers[static_cast<std::size_t>(example.targets.back())];
    const std::size_t print = fed.size() - 2;
    std::size_t set = print - 1;
    while (fed[set] != fed.back() || fed[set + 1] != equals) --set;
    distance.add(static_cast<double>(print - set));
  }

  EXPECT_NEAR(operations.mean(), expected.operations, 4);
  tokens.expect_exact(expected.tokens, "tokens");
  distance.expect_exact(expected.distance, "distance");
  testing::expect_share(over_512, programs, expected.over_512, "over 512 tokens");
  testing::expect_share(answers[10], programs, expected.answer_10, "answer 10");
  testing::expect_share(answers[0], programs, expected.answer_0, "answer 0");
  const double majority = *std::max_element(answers.begin(), answers.end());
  testing::expect_share(programs - majority, programs, expected.majority_error, "error of the majority answer");
}

INSTANTIATE_TEST_SUITE_P(Programs, CountingStatistics,
                         ::testing::Values(CheckNumbers{1, 50, 278.6, 320.3, 0.141, 0.203, 0.142, 55.7, 0.797},
                                           CheckNumbers{1, 100, 294.2, 318.6, 0.088, 0.171, 0.155, 86.9, 0.829},
                                           CheckNumbers{1, 10, 261.5, 395.1, 0.345, 0.173, 0.141, 21.5, 0.827},
                                           CheckNumbers{3, 50, 278.7, 320.3, 0.141, 0.214, 0.139, 111.7, 0.786},
                                           CheckNumbers{5, 50, 278.9, 320.5, 0.142, 0.215, 0.140, 131.4, 0.785}),
                         [](const auto& test) {
                           return "Vars" + std::to_string(test.param.vars) + "Pass" +
                                  std::to_string(test.param.pass_weight);
                         });

}  // namespace tally::counting_test
