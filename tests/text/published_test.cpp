// Tokenizers in the shapes of published files are compared with the ids of the library `tokenizers`. Normal forms and
// added tokens have tests of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/text/encoder.hpp"
#include "tasks/text/tokenizer_files.hpp"
#include "tests/core/io_files.hpp"

namespace tally::published_test {

using Ids = std::vector<std::int32_t>;

const JsonValue& reference() {
  static const JsonValue value = read_json(formatted("{}/tests/text/reference/published.json", TALLY_SOURCE_DIR));
  return value;
}

JsonValue file_of(const JsonValue& one) {
  JsonValue file = one.at("tokenizer"), model = file.at("model");
  const JsonValue& made = reference().at("models").at(one.string("uses"));
  model.set("vocab", made.at("vocab")).set("merges", made.at("merges"));
  return file.set("model", std::move(model));
}

JsonValue named(std::string_view name) {
  for (const JsonValue& one : reference().elements("cases")) {
    if (one.string("name") == name) return file_of(one);
  }
  ADD_FAILURE() << name;
  return {};
}

TokenizerParts read(const JsonValue& file) { return parse_tokenizer_json(write_json(file), "made"); }

std::vector<Ids> encoded(const TokenizerParts& parts, const JsonValue::Array& texts) {
  const Tokenizer tokenizer(parts);
  Encoder encoder(tokenizer);
  std::vector<std::string> allowed;
  for (const SpecialToken& special : parts.specials) allowed.push_back(special.name);
  std::vector<Ids> all;
  for (const JsonValue& text : texts) encoder.encode(text.string(), allowed, all.emplace_back());
  return all;
}

TEST(Published, GiveTheIdsOfTheLibrary) {
  const JsonValue::Array& texts = reference().elements("texts");
  for (const JsonValue& one : reference().elements("cases")) {
    SCOPED_TRACE(one.string("name"));
    const TokenizerParts parts = read(file_of(one));
    const std::vector<Ids> ids = encoded(parts, texts);
    const JsonValue::Array& wanted = one.elements("ids");
    ASSERT_EQ(ids.size(), wanted.size());
    for (std::size_t n = 0; n < texts.size(); ++n) {
      const auto numbers = wanted[n].integers();
      EXPECT_EQ(ids[n], Ids(numbers.begin(), numbers.end())) << texts[n].string();
    }
  }
}

TEST(Published, WhatChangesIdsAndIsNotReadIsRefused) {
  const auto refused = [](const char* name, std::string_view member, JsonValue value, std::string_view message) {
    const JsonValue file = named(name).set(std::string(member), std::move(value));
    EXPECT_ERROR(parse_tokenizer_json(write_json(file), "x/tokenizer.json"), message);
  };
  const auto parsed = [](std::string_view text) { return parse_json(text, {}, "test"); };
  const JsonValue metaspace = named("metaspace-first").at("pre_tokenizer");
  const JsonValue replace = named("gemma").at("normalizer");
  refused("neox", "normalizer", parsed(R"({"type": "Precompiled"})"),
          "normalizer.type: 'Precompiled' is not read; NFC, NFD, NFKC and NFKD are");
  refused("gemma", "normalizer", parsed(R"({"type": "Sequence", "normalizers": [{"type": "Lowercase"}]})"),
          "normalizer.normalizers[0]: is not read here; with byte_fallback NFC, NFD, NFKC and NFKD are");
  refused("gemma", "pre_tokenizer", metaspace, "'Metaspace' is not read with byte_fallback");
  refused("metaspace-first", "normalizer", replace, "'Metaspace' is not read with byte_fallback");
  refused("metaspace-first", "pre_tokenizer", {}, "there is none");
  refused("metaspace-never", "decoder", named("metaspace-first").at("decoder"),
          "decoder: is not read here; with byte_fallback and this treatment of blanks");
  refused("gpt2", "pre_tokenizer", parsed(R"({"type": "Sequence", "pretokenizers": []})"),
          "pre_tokenizer: has no steps");
  refused("gpt2", "pre_tokenizer", parsed(R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Isolated"})"),
          "pre_tokenizer.type: 'Split' is not read; ByteLevel is, as the last step");
  refused("gpt2", "model", parsed(R"({"vocab": {}})"), "model.type: is missing, and the model has no merges");
  JsonValue model = named("gpt2").at("model");
  EXPECT_NO_THROW(read(named("gpt2").set("model", model.set("dropout", 0.0).set("unk_token", "x"))));
}

// The library does not strip white space that the token before has taken already.
TEST(Published, StripsDoNotOverlap) {
  TokenizerParts parts = byte_tokenizer();
  for (const auto& [text, lstrip, rstrip] : {std::tuple{"r", false, true}, {"l", true, false}, {" ", true, false}}) {
    const auto id = static_cast<std::int32_t>(parts.tokens.size());
    parts.added.push_back({text, id, {.lstrip = lstrip, .rstrip = rstrip}});
    parts.tokens.emplace_back(text);
  }
  const Tokenizer tokenizer(parts);
  const std::int32_t a = tokenizer.find("a");
  EXPECT_EQ(Encoder(tokenizer).encode("a r  l a"), (Ids{a, 259, 257, 258, 259, a}));
}

TEST(Published, NormalForms) {
  // Unicode Standard Annex 15, tables 4 and 5 and figure 6, and a byte that is not UTF-8.
  EXPECT_EQ(normalized("\xe1\xb8\x8b\xcc\xa3 e\xcc\x81\xff\xcc\x81", NormalForm::nfc),
            "\xe1\xb8\x8d\xcc\x87 \xc3\xa9\xff\xcc\x81");
  EXPECT_EQ(normalized("\xef\xac\x81\xe2\x84\xab", NormalForm::nfc), "\xef\xac\x81\xc3\x85");
  EXPECT_EQ(normalized("\xef\xac\x81\xe2\x84\xab", NormalForm::nfkc), "fi\xc3\x85");
  EXPECT_EQ(normalized("\xef\xac\x81\xe2\x84\xab", NormalForm::nfd),
            "\xef\xac\x81"
            "A\xcc\x8a");
  EXPECT_EQ(normalized("\xef\xac\x81\xe2\x84\xab", NormalForm::nfkd), "fiA\xcc\x8a");
  EXPECT_EQ(normalized("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", NormalForm::nfc), "\xed\x95\x9c");
  const std::string hindi = "\xe0\xa4\xb9\xe0\xa4\xbf\xe0\xa4\xa8\xe0\xa5\x8d\xe0\xa4\xa6\xe0\xa5\x80 in NFC";
  EXPECT_EQ(normalized(hindi, NormalForm::nfc), hindi);
}

// 20,000 of them take about as long as three on the same text: the time grows with the text.
TEST(Published, ManyAddedTokens) {
  constexpr std::int32_t many = 20'000, few = 3;
  TokenizerParts parts = byte_tokenizer(), parts_with_few = parts;
  std::string text;
  for (std::int32_t n = 0; n < many; ++n) {
    const auto id = static_cast<std::int32_t>(parts.tokens.size());
    parts.tokens.push_back(formatted("<|added_{}|>", n));
    parts.added.push_back({parts.tokens.back(), id});
    text += formatted("some words {} <|not|>\n", parts.tokens.back());
    if (n + 1 == few) parts_with_few = parts;
  }
  // The shortest of three times.
  const auto seconds_of = [&](const TokenizerParts& with, std::int32_t found) {
    const Tokenizer tokenizer(with);
    double least = std::numeric_limits<double>::infinity();
    for (int n = 0; n < 3; ++n) {
      const auto begin = std::chrono::steady_clock::now();
      const Ids ids = Encoder(tokenizer).encode(text);
      least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
      EXPECT_EQ(std::ranges::count_if(ids, [](std::int32_t id) { return id > 256; }), found);
      EXPECT_EQ(tokenizer.decode(ids), text);
    }
    return least;
  };
  const double of_few = seconds_of(parts_with_few, few), of_many = seconds_of(parts, many);
  EXPECT_LT(of_many, 10 * of_few);
}

}  // namespace tally::published_test
