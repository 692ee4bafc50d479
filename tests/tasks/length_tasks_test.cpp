// Tasks with prompts of many lengths: the answers, the splits, the shares of the answers, and what simple ones get.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/tasks/check_numbers.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally {
namespace {

using testing::make_task;
using testing::Mean;
using testing::Settings;

// The answers to the beginnings of a prompt, by the task's definition.
std::vector<std::int32_t> parities(const std::vector<std::int32_t>& bits) {
  std::vector<std::int32_t> answers;
  std::int32_t ones = 0;
  for (const std::int32_t bit : bits) answers.push_back((ones += bit) % 2);
  return answers;
}

struct RegularTask {
  const char* name;
  std::int32_t separator;
  std::vector<std::int32_t> (*answers)(const std::vector<std::int32_t>& prompt);
};
const std::vector<RegularTask> regular_tasks{{"parity", 2, parities}};

TEST(RegularTasks, TheAnswerStandsAtTheSeparator) {
  for (const RegularTask& one : regular_tasks) {
    for (const bool every : {false, true}) {
      const auto task = make_task(one.name, {{"max-length", "12"}, {"every", every ? "true" : "false"}});
      EXPECT_EQ(task->breakdown(), "length");
      for (const Split& split : task->splits()) {
        testing::for_each_example(*task, split.name, 30, [&](const Example& example) {
          std::vector<std::int32_t> prompt = example.tokens;
          ASSERT_EQ(prompt.back(), one.separator);
          prompt.pop_back();
          const std::vector<std::int32_t> answers = one.answers(prompt);
          ASSERT_EQ(example.targets.back(), answers.back()) << one.name << " " << task->text(example);
          for (std::size_t t = 0; t < prompt.size(); ++t) {
            ASSERT_EQ(example.score_mask[t], 0);
            ASSERT_EQ(example.loss_mask[t], every);
            ASSERT_EQ(example.targets[t], every ? answers[t] : 0);
          }
          ASSERT_EQ(example.score_mask.back() + example.loss_mask.back(), 2);
          ASSERT_EQ(example.keys.back(), static_cast<std::int32_t>(prompt.size()));
        });
      }
    }
  }
}

TEST(LengthSplits, CoverWhatTheyPromise) {
  for (const RegularTask& one : regular_tasks) {
    const auto task = make_task(one.name, {{"max-length", "4"}});
    ASSERT_EQ(task->splits().size(), 4u);
    const std::vector<std::pair<std::size_t, std::size_t>> ranges{{1, 4}, {1, 4}, {5, 10}, {11, 50}};
    for (std::size_t i = 0; i < 4; ++i) {
      const Split& split = task->splits()[i];
      EXPECT_EQ(split.length, static_cast<std::int64_t>(ranges[i].second + 1)) << split.name;
      Mean length;
      std::vector<int> seen(ranges[i].second + 1);
      testing::for_each_example(*task, split.name, 1000, [&](const Example& example) {
        const std::size_t n = example.tokens.size() - 1;
        ASSERT_TRUE(ranges[i].first <= n && n <= ranges[i].second);
        ++seen[n];
        length.add(static_cast<double>(n));
      });
      for (std::size_t n = ranges[i].first; n <= ranges[i].second; ++n) EXPECT_GT(seen[n], 0) << n;
      length.expect_exact(static_cast<double>(ranges[i].first + ranges[i].second) / 2, split.name);
    }
    EXPECT_EQ(make_task(one.name, {{"far-count", "0"}})->splits().size(), 3u);
    EXPECT_EQ(make_task(one.name)->splits().back().length, 501);
  }
}

// Shares of the answers 0, 1, ...
void expect_answers(const std::string& name, const Settings& settings, const char* split,
                    const std::vector<double>& shares) {
  const auto task = make_task(name, settings);
  std::vector<double> seen(shares.size());
  constexpr std::int64_t sequences = 10'000;
  testing::for_each_example(*task, split, sequences,
                            [&](const Example& e) { ++seen.at(static_cast<std::size_t>(e.targets.back())); });
  for (std::size_t answer = 0; answer < shares.size(); ++answer) {
    testing::expect_share(seen[answer], sequences, shares[answer], name + " " + split + " " + std::to_string(answer));
  }
}

const Settings twenty{{"max-length", "20"}, {"eval-count", "20000"}};
const Settings forty{{"max-length", "40"}};

TEST(Parity, CheckNumbers) {
  expect_answers("parity", twenty, "train", {0.5, 0.5});
  expect_answers("parity", twenty, "ood-long", {0.5, 0.5});
  expect_answers("parity", forty, "train", {0.5, 0.5});
}

}  // namespace
}  // namespace tally
