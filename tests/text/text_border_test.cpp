#include "tasks/text/text_border.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/random.hpp"
#include "tasks/text/splitter.hpp"
#include "tasks/text/words.hpp"

namespace tally {
namespace {

std::vector<std::string> pieces(const SplitPattern& pattern, std::string_view text) {
  std::vector<std::string> found;
  Splitter(pattern).split(text, [&](std::string_view piece) { found.emplace_back(piece); });
  return found;
}

// At every place that is named, whatever stands around it, also bytes that are not UTF-8.
TEST(TextBorder, PartsHaveThePiecesOfTheWhole) {
  const std::vector<std::string> characters{"a",      " ",        "\n",     "  ",     "\n\n", "\r\n",       "\t",
                                            "1",      "234",      ".",      ")",      "'s",   "é",          "漢",
                                            "\u3000", "\u00a0",   "\u2028", "\u0301", "–",    "\U0001f600", "\xff",
                                            "\x80",   "\xe3\x80", "\xc2",   "\u0085", "Z"};
  Rng rng({7, stream_of("borders"), 0});
  std::size_t borders = 0;
  for (const std::string_view name : split_pattern_names()) {
    const SplitPattern pattern(name);
    ASSERT_TRUE(has_text_borders(name));
    for (int n = 0; n < 1500; ++n) {
      std::string text;
      for (int length = 0; length < 24; ++length) {
        text += characters[rng.below(static_cast<std::uint32_t>(characters.size()))];
      }
      const std::vector<std::string> whole = pieces(pattern, text);
      for (std::size_t end = text.size(); (end = last_text_border(std::string_view(text).substr(0, end))) > 0;) {
        ++borders;
        const std::string_view left = std::string_view(text).substr(0, end), right = std::string_view(text).substr(end);
        std::vector<std::string> both = pieces(pattern, left);
        for (std::string& piece : pieces(pattern, right)) both.push_back(std::move(piece));
        ASSERT_EQ(both, whole) << name << " at " << end << " of " << testing::PrintToString(text);
        ASSERT_EQ(count_words(left) + count_words(right), count_words(text));
      }
    }
  }
  EXPECT_GT(borders, 1000u);
}

TEST(TextBorder, IsTheLastOne) {
  EXPECT_EQ(last_text_border("one two three"), 7u) << "before the blank";
  EXPECT_EQ(last_text_border("one two\nthree"), 8u) << "behind the line end";
  EXPECT_EQ(last_text_border("one two  three"), 3u);
  EXPECT_EQ(last_text_border("one two "), 3u) << "what follows a blank must be known";
  EXPECT_EQ(last_text_border("one two three", 7), 0u) << "behind `from`";
  EXPECT_EQ(last_text_border("one two three", 6), 7u);
  EXPECT_EQ(last_text_border(" one"), 0u);
  EXPECT_EQ(last_text_border(""), 0u);
  EXPECT_FALSE(has_text_borders(R"(\p{L}+|\P{L}+)"));
}

}  // namespace
}  // namespace tally
