#include "tasks/text/tokenizer_files.hpp"

#include <array>

#include "core/io/base64.hpp"
#include "core/io/json.hpp"
#include "tasks/text/byte_characters.hpp"
#include "tasks/text/encoder.hpp"
#include "tasks/text/prepare/bpe_training.hpp"
#include "tests/core/io_files.hpp"

namespace tally::tokenizer_files_test {

TokenizerParts small_tokenizer(const std::string& pattern = "gpt2") {
  PieceCounts counts;
  for (const char* piece : {" the", " cat", " that", "\xc3\xa9t\xc3\xa9", "###", "aaaa"}) counts[piece] = 3;
  return train_bpe(counts, {.vocabulary = 271, .pattern = pattern});
}

const std::string sample = "the cat that ### aaaaaa  \xc3\xa9t\xc3\xa9\n\xff 12345";

std::vector<std::int32_t> encoded(const TokenizerParts& parts, std::string_view text = sample) {
  return Encoder(Tokenizer(parts)).encode(text);
}

// The file of a small tokenizer, with a change.
template <class Change>
std::string changed(Change&& change) {
  JsonValue file = parse_json(tokenizer_json(small_tokenizer()), {}, "made");
  change(file);
  return write_json(file);
}

JsonValue& member(JsonValue& value, std::string_view name) { return const_cast<JsonValue&>(value.at(name)); }

void expect_refused(const std::string& text, std::string_view message) {
  EXPECT_ERROR(parse_tokenizer_json(text, "x/tokenizer.json"), message);
  EXPECT_ERROR(parse_tokenizer_json(text, "x/tokenizer.json"), "x/tokenizer.json");
}

std::string tiktoken_text(const std::vector<std::string>& merged) {
  std::string text;
  int rank = 0;
  for (int byte = 0; byte < 256; ++byte)
    text += formatted("{} {}\n", to_base64(std::string(1, static_cast<char>(byte))), rank++);
  for (const std::string& token : merged) text += formatted("{} {}\n", to_base64(token), rank++);
  return text;
}

TEST(TokenizerFiles, JsonIsReadAsItWasWritten) {
  for (const std::string pattern : {"gpt2", "llama3", "cl100k", R"( ?\p{L}+|[^\p{L}])"}) {
    TokenizerParts parts = small_tokenizer(pattern);
    for (const bool flag : {false, true}) {
      parts.ignore_merges = flag;
      const std::string text = tokenizer_json(parts);
      const TokenizerParts read = parse_tokenizer_json(text, "made");
      EXPECT_EQ(read.pattern(), pattern);
      EXPECT_EQ(read.tokens, parts.tokens);
      EXPECT_EQ(encoded(read), encoded(parts));
    }
  }
}

TEST(TokenizerFiles, MergesAsTextsAndPostProcessors) {
  const std::string text = changed([](JsonValue& file) {
    JsonValue merges = JsonValue::array();
    for (const JsonValue& merge : member(file, "model").elements("merges")) {
      merges.push(merge.elements()[0].string() + " " + merge.elements()[1].string());
    }
    member(file, "model").set("merges", merges);
    member(file, "model").set("continuing_subword_prefix", "");
    file.set("post_processor", JsonValue::object({{"type", "ByteLevel"}}));
  });
  EXPECT_TRUE(parse_tokenizer_json(text, "made").notes.empty()) << "ByteLevel adds no token";
  const TokenizerParts parts = parse_tokenizer_json(
      changed([](JsonValue& file) {
        const JsonValue steps(JsonValue::Array{JsonValue::object({{"type", "ByteLevel"}}),
                                               JsonValue::object({{"type", "TemplateProcessing"}})});
        file.set("post_processor", JsonValue::object({{"type", "Sequence"}, {"processors", steps}}));
      }),
      "made");
  EXPECT_EQ(encoded(parts), encoded(small_tokenizer()));
  ASSERT_EQ(parts.notes.size(), 1);
  EXPECT_TRUE(holds(parts.notes[0], "post-processor is not applied"));
}

TEST(TokenizerFiles, VocabularyAndMerges) {
  TemporaryFolder folder;
  const TokenizerParts small = small_tokenizer();
  JsonValue tokens = parse_json(tokenizer_json(small), {}, "made").at("model").at("vocab");
  const std::string vocabulary = write_json(tokens.set(end_of_text_name, small.specials[0].id));
  std::string merges;
  for (const MergedPair& merge : small.merges) {
    const auto written = [&](std::int32_t id) { return byte_characters(small.tokens[static_cast<std::size_t>(id)]); };
    merges += formatted("{} {}\n", written(merge.left), written(merge.right));
  }
  folder.file("vocab.json", vocabulary);
  folder.file("merges.txt", "#version: 0.2\n" + merges);
  for (const std::string& path : {folder.file("vocab.json"), folder.file("merges.txt"), folder.path()}) {
    const TokenizerParts parts = read_tokenizer(path);
    EXPECT_EQ(tokenizer_json(parts), tokenizer_json(small));
  }
  // "# #" is a merge, not a remark; CRLF, empty lines and a missing first line are no harm.
  EXPECT_TRUE(holds(merges, "\n# #\n"));
  std::string windows;
  for (const char c : merges) windows += c == '\n' ? "\r\n\r\n" : std::string(1, c);
  EXPECT_EQ(encoded(parse_vocabulary(vocabulary, "v", windows, "m")), encoded(small_tokenizer()));
  EXPECT_ERROR(parse_vocabulary(vocabulary, "v", "#version: 0.2\nt\n", "m"), "m: line 2: 't'");
  EXPECT_ERROR(parse_vocabulary(vocabulary, "v", "t h e\n", "m"), "m: line 1: 't h e'");
  EXPECT_ERROR(parse_vocabulary(vocabulary, "v", "q z\n", "m"), "m: line 1: 'q' and 'z' together are no token");
  EXPECT_ERROR(parse_vocabulary("[]", "v", "", "m"), "v: the vocabulary: is an array");
  EXPECT_ERROR(read_tokenizer(folder.file("vocab.json"), "gpt2"), "says itself how text is cut");
}

TEST(TokenizerFiles, Tiktoken) {
  TemporaryFolder folder;
  const std::string path = folder.file("a.tiktoken", tiktoken_text({"th", "he", " the", "the", "abc", "hé"}));
  const TokenizerParts parts = read_tokenizer(path);
  EXPECT_EQ(parts.pattern(), "cl100k");
  EXPECT_EQ(parts.specials[0].id, 262);
  EXPECT_EQ(encoded(parts, "abc the the xthex"), (std::vector<std::int32_t>{260, 258, 258, 32, 120, 259, 120}));
  // "abc" cannot be reached by merges but is a piece as a whole.
  EXPECT_EQ(encoded(parts, "abcd"), (std::vector<std::int32_t>{97, 98, 99, 100}));
  EXPECT_EQ(read_tokenizer(path, "gpt2").pattern(), "gpt2");
  EXPECT_EQ(encoded(parse_tokenizer_json(tokenizer_json(parts), "made"), "abc the the xthex"),
            encoded(parts, "abc the the xthex"));
  const std::string bytes = tiktoken_text({});
  for (const auto& [lines, message] : {std::pair{"YQ== 256\n", "'a' is there twice"},
                                       {"YWI= 256\nYWM= 256\n", "the id 256 stands for two tokens"},
                                       {"YWI= 258\n", "no token has the id 256, but one has 258"},
                                       {"YWI 256\n", "'YWI' is not base64"},
                                       {"YW!= 256\n", "line 257: 'YW!=' is not base64"},
                                       {"YWI= 4294967296\n", "is no rank"}}) {
    const std::string text = bytes + lines;
    EXPECT_ERROR(parse_tiktoken(text, "a.tiktoken", ""), message);
    EXPECT_ERROR(parse_tiktoken(text, "a.tiktoken", ""), "a.tiktoken");
  }
  EXPECT_ERROR(parse_tiktoken(bytes.substr(bytes.find('\n') + 1), "a", ""), "no token has the id 0");
  EXPECT_ERROR(parse_tiktoken("YQ== 0\n", "a", ""), "no token is the byte 0 alone");
  EXPECT_ERROR(parse_tiktoken(tiktoken_text({std::string(3000, 'a')}), "a", ""), "has 3000 bytes");
}

// cl100k_base ends its ranks at 100255 and has <|endoftext|> at 100257; p50k_base has it in a hole between its ranks.
TEST(TokenizerFiles, TiktokensSpecialTokensHaveTheIdsThatTheCallerNames) {
  const std::string text = tiktoken_text({"th", "he"});  // 0 to 257
  const TokenizerParts plain = parse_tiktoken(text, "a", "");
  ASSERT_EQ(plain.notes.size(), 1u);
  EXPECT_TRUE(holds(plain.notes[0], "<|endoftext|> has the id 258, behind the last rank"));
  const TokenizerParts parts = parse_tiktoken(text, "a", "", {{"<|endoftext|>", 259}, {"<|fim|>", 262}});
  EXPECT_TRUE(parts.notes.empty());
  const Tokenizer tokenizer(parts);
  EXPECT_EQ(tokenizer.vocabulary(), 263);
  EXPECT_EQ(tokenizer.special("<|endoftext|>"), 259);
  EXPECT_EQ(tokenizer.special("<|fim|>"), 262);
  EXPECT_EQ(tokenizer.special("<|unused-258|>"), 258);

  const std::string hole = text + formatted("{} 259\n", to_base64("an"));
  EXPECT_ERROR(parse_tiktoken(hole, "a", ""), "no token has the id 258");
  const Tokenizer filled(parse_tiktoken(hole, "a", "", {{"<|endoftext|>", 258}}));
  EXPECT_EQ(filled.vocabulary(), 260);
  EXPECT_EQ(filled.special("<|endoftext|>"), 258);
  EXPECT_EQ(filled.find("an"), 259);

  EXPECT_ERROR(parse_tiktoken(text, "a", "", {{"<|endoftext|>", 257}}), "the id 257 stands for two tokens");
  EXPECT_ERROR(parse_tiktoken(text, "a", "", {{"x", 258}, {"x", 259}}), "'x' is there twice");
  EXPECT_ERROR(parse_tiktoken(text, "a", "", {{"x", 2'000'000'000}}), "lies more than 65536 behind them");
  EXPECT_EQ(parse_special("a=b=7").name, "a=b");
  TemporaryFolder folder;
  const std::string json = folder.file("t.json", tokenizer_json(small_tokenizer()));
  EXPECT_ERROR(read_tokenizer(json, "", {{"x", 300}}), "says itself what its special tokens are");
}

// As in tokenizers: added tokens that are not special are found in every text, the earliest first, and the longest of
// several. The text between is cut and merged separately. Pythia has runs of blanks as such tokens.
TEST(TokenizerFiles, AddedTokensAreFoundBeforeATextIsCut) {
  JsonValue file = parse_json(tokenizer_json(byte_tokenizer()), {}, "made");
  JsonValue added = file.at("added_tokens");
  for (const auto& [id, content] : {std::pair{257, "    "}, {258, "  "}, {259, "ba"}}) {
    added.push(JsonValue::object({{"id", id}, {"content", content}, {"normalized", true}, {"special", false}}));
  }
  file.set("added_tokens", added);
  const TokenizerParts parts = parse_tokenizer_json(write_json(file), "made");
  ASSERT_EQ(parts.added.size(), 3u);
  EXPECT_EQ(parts.added[2].id, 259);
  const Tokenizer tokenizer(parts);
  Encoder encoder(tokenizer);
  const std::string text = "b       ba\n";  // seven blanks
  const std::vector<std::int32_t> ids = encoder.encode(text);
  const std::int32_t b = tokenizer.find("b"), blank = tokenizer.find(" "), end = tokenizer.find("\n");
  EXPECT_EQ(ids, (std::vector<std::int32_t>{b, 257, 258, blank, 259, end}));
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_EQ(tokenizer.find("ba"), -1) << "no merge makes it";
  const std::vector<std::string> allowed{"<|endoftext|>"};
  std::vector<std::int32_t> with_special;
  encoder.encode("ba<|endoftext|>  ", allowed, with_special);
  EXPECT_EQ(with_special, (std::vector<std::int32_t>{259, 256, 258}));
}

// A member of the file set to a value, and a part of the message that refuses it.
struct Case {
  const char *member, *value, *message;
};

TEST(TokenizerFiles, WhatIsNotUnderstoodIsRefusedWithItsPlace) {
  expect_refused("[]", "the file: is an array");
  expect_refused("{}", "pre_tokenizer: is missing");
  expect_refused("\xef\xbb\xbf{}", "byte order mark");
  expect_refused(std::string(100'000, '['), "nested deeper than 16");
  const std::string bytes = R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})";
  const std::string split = R"({"type": "Split", "pattern": {"Regex": "a|[^a]"}, "behavior": "Isolated"})";
  const auto steps = [](const std::string& first, const std::string& second) {
    return R"({"type": "Sequence", "pretokenizers": [)" + first + ", " + second + "]}";
  };
  const std::string dropped =
                        R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Contiguous", "invert": false})",
                    text = R"({"type": "Split", "pattern": {"Text": "a"}, "behavior": "Isolated", "invert": false})";
  const auto with_member = [](const std::string& name, const JsonValue& value) {
    return changed([&](JsonValue& file) { file.set(name, value); });
  };
  for (const auto& [name, value, message] : std::vector<std::array<std::string, 3>>{
           {"truncation", "{}", "truncation: is not read"},
           {"decoder", R"({"type": "WordPiece"})", "decoder.type: 'WordPiece' is not read"},
           {"normalizer", R"({"type": "Lowercase"})", "normalizer.type: 'Lowercase' is not read; NFC"},
           {"pre_tokenizer", R"({"type": "Whitespace"})", "pre_tokenizer.type: 'Whitespace'"},
           {"pre_tokenizer", R"({"type": "ByteLevel", "add_prefix_space": true})",
            "pre_tokenizer.add_prefix_space: is not read here when it is true"},
           {"pre_tokenizer", steps(dropped, bytes), "pre_tokenizer.pretokenizers[0].behavior: 'Contiguous'"},
           {"pre_tokenizer", steps(text, bytes), "pre_tokenizer.pretokenizers[0].pattern.Text: is not known"},
           {"pre_tokenizer", steps(R"({"type": "Punctuation"})", bytes),
            "pre_tokenizer.pretokenizers[0].type: 'Punctuation' is not read; Split and Digits are"},
           {"pre_tokenizer", steps(bytes, split), "pretokenizers[0].type: 'ByteLevel' is not read"}}) {
    expect_refused(with_member(name, parse_json(value, {}, "value")), message);
  }
}

TEST(TokenizerFiles, ModelsThatCannotBe) {
  const auto model = [](std::string_view name, const JsonValue& value) {
    return changed([&](JsonValue& file) { member(file, "model").set(name, value); });
  };
  for (const auto& [name, value, message] :
       {Case{"type", R"("WordPiece")", "model.type: 'WordPiece' is not read; BPE is"},
        {"dropout", "0.1", "model.dropout: is not read here unless it is null"},
        {"byte_fallback", "true", "'ByteLevel' is not read with byte_fallback"},
        {"end_of_word_suffix", R"("</w>")", "model.end_of_word_suffix"},
        {"vocab", "{}", "model.vocab: no token has the id 0, but one has"},
        {"merges", R"(["t h", "a b c"])", "model.merges[1]: 'a b c'"},
        {"merges", R"(["t h", "q z"])", "model.merges[1]: 'q' and 'z' together are no token"}}) {
    expect_refused(model(name, parse_json(value, {}, "value")), message);
  }
  EXPECT_ERROR(Tokenizer(parse_tokenizer_json(model("merges", JsonValue::Array{"t h", "t h"}), "x")),
               "stands there twice");
  const auto with_token = [](const char* token, const JsonValue& id) {
    return changed([&](JsonValue& file) { member(member(file, "model"), "vocab").set(token, id); });
  };
  for (const auto& [token, id, message] : {Case{"xyz", "400", "no token has the id 271, but one has 400"},
                                           {"xyz", "5", "the id 5 stands for two tokens"},
                                           {"xyz", "2147483648", "'xyz' has the id 2147483648"},
                                           {"x y", "271", "holds a character that stands for no byte"},
                                           {"", "271", "a token without bytes"},
                                           {"<|endoftext|>", "5", "'<|endoftext|>' has the ids 270 and 5"}}) {
    expect_refused(with_token(token, parse_json(id, {}, "id")), message);
  }
  EXPECT_NO_THROW(parse_tokenizer_json(with_token("<|endoftext|>", 270), "x"));
  const std::string no_byte = changed([](JsonValue& file) {
    member(member(file, "model"), "vocab").remove("a");
    member(member(file, "model"), "vocab").set("qqq", 64);
    member(file, "model").set("merges", JsonValue::array());
  });
  expect_refused(no_byte, "no token is the byte 97 alone, written 'a'");
  const auto with_special = [](const std::string& name, const JsonValue& value) {
    return changed([&](JsonValue& file) { const_cast<JsonValue&>(file.elements("added_tokens")[0]).set(name, value); });
  };
  for (const auto& [name, value, message] : {Case{"special", "1", "added_tokens[0].special: is an integer"},
                                             {"single_word", "true", "added_tokens[0].single_word: is not read here"},
                                             {"id", "5", "the id 5 stands for two tokens"}}) {
    expect_refused(with_special(name, parse_json(value, {}, "value")), message);
  }
}

TEST(TokenizerFiles, NamesSayWhichKind) {
  TemporaryFolder folder;
  EXPECT_ERROR(read_tokenizer(folder.path()), "holds neither tokenizer.json nor vocab.json");
  EXPECT_ERROR(read_tokenizer(folder.file("a.txt", "")), "tokenizer.json, vocab.json with merges.txt");
  EXPECT_ERROR(read_tokenizer(folder.file("none.json")), "cannot be opened");
  EXPECT_EQ(read_tokenizer(folder.file("t.json", tokenizer_json(small_tokenizer()))).tokens.size(), 271);
}

}  // namespace tally::tokenizer_files_test
