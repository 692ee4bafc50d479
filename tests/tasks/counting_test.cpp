// Counting: the first programs as text, an interpreter that executes them, cutting, errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tasks/make_task.hpp"

namespace tally {
namespace counting_test {

using testing::contains;
using testing::error_of;
using testing::make_task;
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

// All generators share the words and ids: 0..10 come first, so that an answer's id is its value.
TEST(Counting, VocabularyGrowsByTheVariables) {
  const std::vector<std::string> one{"0", "1",  "2", "3", "4",   "5",     "6",     "7", "8",
                                     "9", "10", "=", ";", "++;", "pass;", "print", "a"};
  EXPECT_EQ(make_task("counting")->vocabulary(), one);
  std::vector<std::string> three = one;
  three.insert(three.end(), {"b", "c"});
  EXPECT_EQ(make_task("counting", {{"vars", "3"}})->vocabulary(), three);
}

TEST(Counting, EveryProgramIsLegalAndItsAnswerRight) {
  for (const char* vars : {"1", "3", "26"}) {
    const auto task = make_task("counting", {{"vars", vars}, {"max-tokens", "4000"}});
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

TEST(Counting, NumberOfOperationsIsAnOption) {
  const auto task = make_task("counting", {{"min-operations", "5"}, {"max-operations", "6"}});
  std::map<std::int64_t, int> seen;
  for (std::int64_t index = 0; index < 100; ++index) ++seen[execute(text_of(*task, "train", index)).operations];
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_GT(seen[5], 0);
  EXPECT_GT(seen[6], 0);
}

// Without `pass`, programs often reach an increment that would exceed 10.
TEST(Counting, WithoutPassValuesStillEndAtTen) {
  const auto task = make_task("counting", {{"pass-weight", "0"}, {"max-tokens", "4000"}});
  for (std::int64_t index = 0; index < 200; ++index) {
    const std::string text = text_of(*task, "train", index);
    ASSERT_TRUE(execute(text).legal) << text;
    ASSERT_FALSE(contains(text, "pass;"));
  }
}

TEST(Counting, IsAPureFunction) { testing::expect_pure("counting", small); }

// The training programs are a fixed set: all splits depend on the data seed and not on the run's seed.
TEST(Counting, FollowsTheDataSeedAlone) {
  const auto base = make_task("counting", small, 1, 2);
  const auto other_seed = make_task("counting", small, 3, 2);
  const auto other_data = make_task("counting", small, 1, 3);
  for (const Split& split : base->splits()) {
    EXPECT_EQ(text_of(*base, split.name, 0), text_of(*other_seed, split.name, 0));
    EXPECT_NE(text_of(*base, split.name, 0), text_of(*other_data, split.name, 0));
  }
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

TEST(Counting, MistakesAreNamed) {
  const auto task = make_task("counting");
  EXPECT_TRUE(contains(error_of([&] { task->encode("a = 0 ; b ++;"); }), "[encode] symbol 5 is 'b', which is none of"));
  EXPECT_TRUE(contains(error_of([&] { task->encode("a=0;"); }), "[encode] symbol 1 is 'a=0;'"));
  EXPECT_EQ(error_of([&] { task->example("train", 10'000); }),
            "[split] train has sequences 0 to 9999, asked for 10000");
  EXPECT_EQ(error_of([] {
              make_task("counting", {{"vars", "3"}})->split("ood-long");
            }),
            "[split] unknown split 'ood-long'; known are train, validation, test");
  EXPECT_EQ(error_of([] {
              make_task("counting", {{"min-operations", "9"}, {"max-operations", "8"}});
            }),
            "[counting] min-operations 9 is more than max-operations 8");
  EXPECT_EQ(error_of([] { make_task("counting", {{"vars", "27"}}); }), "[task] vars must be 1 to 26, got '27'");
}

TEST(Counting, EncodesUnfinishedPrograms) {
  const auto task = make_task("counting");
  EXPECT_EQ(task->encode("a = 0 ;"), (std::vector<std::int32_t>{16, 11, 0, 12}));
  EXPECT_EQ(task->encode("  a  ++;\tpass;\n"), (std::vector<std::int32_t>{16, 13, 14}));
  EXPECT_TRUE(task->encode(" ").empty());
}

}  // namespace counting_test
}  // namespace tally
