#include "tasks/text/splitter.hpp"

#include "core/utf8.hpp"
#include "tests/core/io_files.hpp"

namespace tally::splitter_test {

std::vector<std::string> pieces_of(std::string_view pattern, std::string_view text, bool with_jit = true) {
  const SplitPattern compiled(pattern, with_jit);
  Splitter splitter(compiled);
  std::vector<std::string> pieces;
  splitter.split(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST(Splitter, PublishedPatterns) {
  EXPECT_EQ(pieces_of("gpt2", "I'll say  \"x12\"\n\n  ok \n"),
            (Pieces{"I", "'ll", " say", " ", " \"", "x", "12", "\"", "\n\n ", " ok", " \n"}));
  EXPECT_EQ(pieces_of("llama3", "I'LL say  x12345\n\n  ok \n"),
            (Pieces{"I", "'LL", " say", " ", " x", "123", "45", "\n\n", " ", " ok", " \n"}));
  EXPECT_EQ(pieces_of("llama3", "a\r "), (Pieces{"a", "\r", " "}));
  EXPECT_EQ(pieces_of("cl100k", "a\r "), (Pieces{"a", "\r "}));
  EXPECT_EQ(pieces_of("gpt2", "\xe1\xa0\x8e "), (Pieces{"\xe1\xa0\x8e", " "}));  // U+180E is no white space
}

TEST(Splitter, WrongBytesArePiecesOfTheirOwn) {
  EXPECT_EQ(pieces_of("gpt2",
                      "ab\xff\xfe"
                      "cd\xe2\x82"),
            (Pieces{"ab", "\xff\xfe", "cd", "\xe2\x82"}));
  EXPECT_EQ(pieces_of("gpt2", "\xed\xa0\x80 x"), (Pieces{"\xed\xa0\x80", " x"}));  // a surrogate
  EXPECT_EQ(pieces_of("gpt2", "a \xff b"), (Pieces{"a", " ", "\xff", " b"}));
  EXPECT_EQ(pieces_of("gpt2", ""), Pieces{});
  EXPECT_EQ(pieces_of("gpt2", std::string_view("\0\0", 2)), Pieces{std::string("\0\0", 2)});
}

TEST(Splitter, CompiledAndInterpretedAgree) {
  std::string text;
  for (char32_t code = 1; code < 0x30000; code += code < 0x3000 ? 1 : 17) {
    if (code >= 0xd800 && code < 0xe000) continue;
    append_utf8(text, code);
    text += code % 3 == 0 ? " a" : code % 7 == 0 ? "'S\n " : "1";
  }
  for (const std::string_view name : split_pattern_names()) {
    const Pieces pieces = pieces_of(name, text);
    EXPECT_EQ(pieces, pieces_of(name, text, false)) << name;
    std::string joined;
    for (const std::string& piece : pieces) joined += piece;
    EXPECT_EQ(joined, text) << name;
  }
}

TEST(Splitter, NamesAndSpellings) {
  for (const std::string_view name : split_pattern_names()) {
    EXPECT_EQ(split_pattern_name(split_pattern_text(name)), name);
    EXPECT_EQ(SplitPattern(split_pattern_text(name)).steps(), std::vector{std::string(name)});
  }
  EXPECT_EQ(split_pattern_name(R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)"),
            "gpt2");
  EXPECT_EQ(pieces_of(R"(\d|\D)", "\xd9\xa1z"), (Pieces{"\xd9\xa1", "z"}));
  EXPECT_EQ(unicode_version().find("1"), 0);
}

// U+3001, the ideographic comma, has the script Common, and Han among its script extensions (Unicode's Scripts.txt and
// ScriptExtensions.txt). Python's regex, Oniguruma and Rust ask for the script.
TEST(Splitter, AScriptIsThatOfTheCharacterAlone) {
  const std::string_view text = "\xe4\xb8\xad\xe6\x96\x87\xe3\x80\x81x";  // two of Han, U+3001, x
  const Pieces wanted{"\xe4\xb8\xad\xe6\x96\x87", "\xe3\x80\x81", "x"};
  for (const char* pattern : {R"(\p{Han}+|\P{Han})", R"([\p{Han}]+|[^\p{Han}])", R"(\P{^Han}+|\p{^Han})",
                              R"(\p{Script=Han}+|\p{L}|\p{P})", R"(\p{Hani}+|\x{3001}|[\x{78}])"}) {
    EXPECT_EQ(pieces_of(pattern, text), wanted) << pattern;
  }
  EXPECT_EQ(pieces_of(R"(\p{L}{1,2}|[{]{2,}?|\pP{1})", "abc,{{{{"), (Pieces{"ab", "c", ",", "{{", "{{"}));
}

// As in tokenizers, the text between two matches is a piece too.
TEST(Splitter, WhatIsNotMatchedIsAPiece) {
  EXPECT_EQ(pieces_of("a+", "aabca"), (Pieces{"aa", "bc", "a"}));
  EXPECT_EQ(pieces_of("a", "bc"), Pieces{"bc"});
}

TEST(Splitter, LongRuns) {
  constexpr std::size_t size = 10'000'000;
  for (const bool with_jit : {true, false}) {
    for (const std::string_view name : split_pattern_names()) {
      EXPECT_EQ(pieces_of(name, std::string(size, 'a'), with_jit).size(), 1) << name;
      EXPECT_EQ(pieces_of(name, std::string(size, ' '), with_jit).size(), 1) << name;
      EXPECT_EQ(pieces_of(name, std::string(size, ' ') + "a", with_jit).size(), 2) << name;
    }
  }
}

TEST(Splitter, PatternsOfFilesAreNotTrusted) {
  for (const auto& [pattern, message] : {std::pair{"(", "missing closing parenthesis"},
                                         {"", "is empty"},
                                         {"(*UTF)a", "byte 0: '(*UTF)a' is not read"},
                                         {"(?m).", "byte 0: '(?m).'"},
                                         {"(?:a|(?R))", "byte 5: '(?R))'"},
                                         {R"(\h+|\H+)", R"(byte 0: '\\h+|\\H+')"},
                                         {R"(\w+|.)", "byte 0: "},
                                         {"a$|.", "byte 1: '$|.'"},
                                         {"[[:alpha:]]", "byte 1: '[:alpha:'"},
                                         {"[a-z&&b]", "byte 4: '&&b]'"},
                                         {"a{,3}|.", "byte 1: '{,3}|.'"},
                                         {"a{1,3}+|.", "byte 1: '{1,3}+|.'"},
                                         {R"(\p{L)", "byte 0: "},
                                         {"[a", "missing terminating ]"}}) {
    const std::string text = pattern;
    EXPECT_ERROR(SplitPattern{text}, message);
  }
  EXPECT_ERROR(SplitPattern(std::string(20'000, 'a')), "20000 bytes");
  EXPECT_ERROR(SplitPattern(std::string(300, '(').append("a").append(300, ')')), "nested");
  EXPECT_ERROR(pieces_of("a*|b*", "aac"), "byte 2 of the text: matches an empty text");
  EXPECT_ERROR(pieces_of("(?=a)|b",
                         "\xff"
                         "ab"),
               "byte 1 of the text: matches an empty text");
  for (const bool with_jit : {true, false}) {
    EXPECT_ERROR(pieces_of("(a+)+b|c", std::string(60, 'a'), with_jit), "of the text: ");
    EXPECT_ERROR(pieces_of("(?:a|(?R)a)+b|(?R)", std::string(60, 'a'), with_jit), "byte");
  }
}

}  // namespace tally::splitter_test
