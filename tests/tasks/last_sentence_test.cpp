// Last sentence: counts by sentence, check numbers, and the error rate of position-only attention.
#include <gtest/gtest.h>

#include <array>

#include "tests/tasks/check_numbers.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally::last_sentence_test {

using testing::make_task;
using testing::Mean;

constexpr std::int32_t full_stop = 18, question = 19, first_count = 20, first_back = 33;

// Occurrences of the requested name in each sentence, the last sentence first.
std::vector<std::int32_t> counts_of(const Example& example) {
  std::vector<std::int32_t> counts;
  const auto end = std::find(example.tokens.begin(), example.tokens.end(), question);
  for (auto token = example.tokens.begin(); token != end; ++token) {
    if (token == example.tokens.begin() || *(token - 1) == full_stop) counts.insert(counts.begin(), 0);
    counts.front() += *token == example.tokens.back();
  }
  return counts;
}

TEST(LastSentence, TheAnswerIsTheCountInTheSentenceAskedFor) {
  for (const auto& setting : testing::Settings{{"back", "0"}, {"back", "1"}, {"back", "4"}, {"back-max", "3"}}) {
    const auto task = make_task("last-sentence", {setting});
    const bool is_asked = setting.first == "back-max";
    std::array<int, 5> seen{};
    for (const Split& split : task->splits()) {
      testing::for_each_example(*task, split.name, 50, [&](const Example& example) {
        const std::vector<std::int32_t> counts = counts_of(example);
        std::size_t back = static_cast<std::size_t>(std::stoi(setting.second));
        if (is_asked) {
          back = static_cast<std::size_t>(example.tokens[example.tokens.size() - 2] - first_back);
        }
        ++seen.at(back);
        ASSERT_EQ(example.targets.back(), first_count + std::min(counts.at(back), 12)) << task->text(example);
        ASSERT_EQ(testing::scored_positions(example), 1);
        ASSERT_EQ(example.score_mask.back(), 1);
      });
    }
    for (int back = 0; is_asked && back <= 3; ++back) {
      EXPECT_GT(seen[static_cast<std::size_t>(back)], 20) << back;
    }
  }
}

TEST(LastSentence, CheckNumbers) {
  struct Row {
    const char* split;
    double tokens, majority, whole, before, window;
    std::array<double, 8> answers;
  };
  const std::array<double, 8> usual{0.0815, 0.188, 0.214, 0.189, 0.147, 0.097, 0.052, 0.022};
  const auto task = make_task("last-sentence", {{"eval-count", "5000"}});
  for (const Row& row :
       {Row{"train", 34, 0.786, 0.020, 0.152, 0.432, usual},
        {"ood-more", 78, 0.786, 0, 0.155, 0.431, usual},
        {"ood-long", 47, 0.792, 0.032, 0.157, 0.447, {0.097, 0.189, 0.208, 0.182, 0.138, 0.091, 0.052, 0.026}}}) {
    Mean tokens, mean_answer, majority, whole, before;
    std::array<Mean, 40> windows;
    std::array<Mean, 8> answers;
    testing::for_each_example(*task, row.split, 5000, [&](const Example& example) {
      const std::int32_t answer = example.targets.back() - first_count;
      const std::vector<std::int32_t> counts = counts_of(example);
      std::int32_t all = 0;
      for (const std::int32_t count : counts) all += count;
      tokens.add(static_cast<double>(example.tokens.size()));
      mean_answer.add(answer);
      for (std::size_t n = 0; n < answers.size(); ++n) answers[n].add(static_cast<std::int32_t>(n) == answer);
      majority.add(answer != 2);
      whole.add(all == answer);
      before.add(counts.at(1) == answer);
      std::int32_t in_window = 0;
      const std::size_t end = example.tokens.size() - 2;  // the position of `?`
      for (std::size_t w = 1; w < windows.size(); ++w) {
        if (w <= end) in_window += example.tokens[end - w] == example.tokens.back();
        windows[w].add(in_window == answer);
      }
    });
    tokens.expect_exact(row.tokens, row.split);
    mean_answer.expect_exact(2.8, row.split);
    majority.expect_near(row.majority, 0.012, row.split);
    whole.expect_near(row.whole, 0.01, row.split);
    before.expect_near(row.before, 0.025, row.split);
    for (std::size_t answer = 0; answer < row.answers.size(); ++answer) {
      answers[answer].expect_near(row.answers[answer], 0.012, formatted("{} {}", row.split, answer));
    }
    std::ranges::max_element(windows.begin() + 1, windows.end(), {}, &Mean::mean)
        ->expect_near(row.window, 0.035, row.split);
  }
}

// For questions about the sentence before the last, the count in the last one is rarely the answer.
TEST(LastSentence, TheLastSentenceDoesNotAnswerForTheOneBefore) {
  const auto task = make_task("last-sentence", {{"back", "1"}, {"eval-count", "5000"}});
  Mean last_right;
  testing::for_each_example(*task, "train", 5000, [&](const Example& example) {
    last_right.add(counts_of(example).at(0) == example.targets.back() - first_count);
  });
  last_right.expect_near(0.152, 0.025, "train");
}

}  // namespace tally::last_sentence_test
