#include "tasks/text/normal_form.hpp"

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

}  // namespace tally::words_test
