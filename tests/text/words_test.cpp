#include "tasks/text/prepare/words.hpp"

#include <gtest/gtest.h>

#include <string>

#include "core/utf8.hpp"

namespace tally::words_test {

TEST(Words, RunsAndLineEnds) {
  EXPECT_EQ(count_words(""), 0);
  EXPECT_EQ(count_words(" \t\r"), 0);
  EXPECT_EQ(count_words(" = Valkyria Chronicles III = \n \n Senj\xc5\x8d no @-@ 3 , \xe9\n"), 14);
  EXPECT_EQ(count_words("a\n\nb"), 4);
}

TEST(Words, EveryWhiteSpaceOfUnicodePartsThem) {
  int blanks = 0;
  for (char32_t code = 1; code <= 0xffff; ++code) {
    if (code >= 0xd800 && code <= 0xdfff) continue;
    std::string text = "a";
    append_utf8(text, code);
    text += "b";
    const std::int64_t words = count_words(text);
    if (words == 1) continue;
    EXPECT_EQ(words, code == '\n' ? 3 : 2);
    ++blanks;
  }
  EXPECT_EQ(blanks, 25);  // characters with the property White_Space
}

TEST(Words, CutAnywhere) {
  const std::string text = "ab\xe2\x80\x89 c\xe2\x80z\n\xe1\x9a\x80\xe2\xc2\xa0\xe3\x80\x80x\xe2\x81";
  const std::int64_t words = count_words(text);
  for (std::size_t first = 0; first <= text.size(); ++first) {
    for (std::size_t second = first; second <= text.size(); ++second) {
      WordCounter counter;
      counter.add(std::string_view(text).substr(0, first));
      counter.add(std::string_view(text).substr(first, second - first));
      counter.add(std::string_view(text).substr(second));
      EXPECT_EQ(counter.words(), words) << first << " " << second;
    }
  }
}

}  // namespace tally::words_test
