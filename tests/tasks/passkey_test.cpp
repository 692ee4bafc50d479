// Passkey: statements, question and filler of every split; depths; the error rate of answering with the last statement.
#include <gtest/gtest.h>

#include <map>

#include "tests/tasks/check_numbers.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally::passkey_test {

using testing::make_task;
using testing::Mean;

constexpr std::string_view sentence = "a gull cries and the long grey wave rolls in over sand. ";

TEST(Passkey, CheckNumbers) {
  struct Row {
    const char *statements, *split;
    std::size_t length, count;
    double depth, last_right;
  };
  for (const Row& row : {Row{"2", "train", 128, 2, 67.5, 0.55},
                         {"2", "ood-long", 256, 2, 131.5, 0.55},
                         {"2", "ood-decoys", 128, 4, 67.5, 0.325},
                         {"1", "in-distribution", 128, 1, 67.5, 1},
                         {"2", "ood-far", 512, 2, 259.5, 0.55}}) {
    const auto task = make_task("passkey", {{"statements", row.statements}, {"eval-count", "3000"}});
    Mean depth, last_right;
    std::map<std::int32_t, int> quarters;
    testing::for_each_example(*task, row.split, 3000, [&](const Example& example) {
      const std::string text{example.tokens.begin(), example.tokens.end()};
      ASSERT_EQ(text, task->text(example));
      ASSERT_EQ(text.size(), row.length);
      ASSERT_EQ(static_cast<std::size_t>(std::count(text.begin(), text.end(), '[')), row.count + 1);
      // Statements and filler, parsed from the left.
      std::map<char, std::string> keys;
      std::map<char, std::size_t> stated_at;
      std::string filler, last;
      std::size_t at = 0;
      while (at < text.size() - 8) {
        if (text[at] != '[') {
          filler += text[at++];
          continue;
        }
        last = text.substr(at + 3, 5);
        ASSERT_TRUE(keys.insert({text[at + 1], last}).second);
        stated_at[text[at + 1]] = at;
        ASSERT_EQ(text[at + 2], '=');
        ASSERT_EQ(text[at + 8], ']');
        at += 9;
      }
      const std::string endless = std::string(sentence) + std::string(sentence);
      for (std::size_t i = 0; i < filler.size(); i += sentence.size()) {
        const std::string piece = filler.substr(i, sentence.size());
        ASSERT_EQ(endless.find(piece) == std::string::npos, false) << piece;
        ASSERT_EQ(piece, filler.substr(0, piece.size()));
      }
      ASSERT_EQ(at, text.size() - 8);
      const char asked = text[at + 1];
      ASSERT_EQ(text.substr(at + 3), keys.at(asked));
      for (std::size_t t = 0; t < text.size(); ++t) {
        ASSERT_EQ(example.score_mask[t], t + 6 >= text.size() && t + 1 < text.size());
        ASSERT_EQ(example.loss_mask[t], example.score_mask[t]);
      }
      const std::size_t distance = text.size() - 5 - stated_at.at(asked);
      ASSERT_EQ(example.keys.back(), static_cast<std::int32_t>(1 + 4 * distance / text.size()));
      ++quarters[example.keys.back()];
      depth.add(static_cast<double>(distance));
      double right = 0;
      for (std::size_t i = 0; i < 5; ++i) right += last[i] == text[at + 3 + i];
      last_right.add(right / 5);
    });
    depth.expect_exact(row.depth, row.split);
    last_right.expect_exact(row.last_right, row.split);
    EXPECT_EQ(quarters.size(), 4u) << row.split;
  }
}

}  // namespace tally::passkey_test
