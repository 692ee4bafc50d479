// Tokenizers in the shapes of published files, with and without byte fallback (SentencePiece), give the ids of the
// library `tokenizers`.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "core/io/json.hpp"
#include "core/utf8.hpp"
#include "tasks/text/encoder.hpp"
#include "tasks/text/normal_form.hpp"
#include "tasks/text/tokenizer_files.hpp"
#include "tests/core/io_files.hpp"

namespace tally::published_test {

using Ids = std::vector<std::int32_t>;

const JsonValue& reference(std::string_view name) {
  static const auto read = [](const char* stem) {
    return read_json(formatted("{}/tests/text/reference/{}.json", TALLY_SOURCE_DIR, stem));
  };
  static const JsonValue published = read("published"), fallback = read("fallback");
  return name == "fallback" ? fallback : published;
}

// Published shapes share their models.
JsonValue file_of(const JsonValue& one) {
  JsonValue file = one.at("tokenizer"), model = file.at("model");
  if (!one.contains("uses")) return file;
  const JsonValue& made = reference("published").at("models").at(one.string("uses"));
  model.set("vocab", made.at("vocab")).set("merges", made.at("merges"));
  return file.set("model", std::move(model));
}

JsonValue named(std::string_view name, std::string_view in = "published") {
  for (const JsonValue& one : reference(in).elements("cases")) {
    if (one.string("name") == name) return file_of(one);
  }
  ADD_FAILURE() << name;
  return {};
}

TokenizerParts read(const JsonValue& file) { return parse_tokenizer_json(write_json(file), "made"); }

void expect_refused(JsonValue file, std::string_view member, JsonValue value, std::string_view message) {
  file.set(std::string(member), std::move(value));
  EXPECT_ERROR(parse_tokenizer_json(write_json(file), "x/tokenizer.json"), message);
  EXPECT_ERROR(parse_tokenizer_json(write_json(file), "x/tokenizer.json"), "x/tokenizer.json");
}

std::string with_plain_blanks(std::string text) {
  for (std::size_t at = 0; (at = text.find("\xe2\x96\x81", at)) != text.npos;) text.replace(at, 3, " ");
  return text;
}

// In published files, the names of special tokens become those tokens.
TEST(Published, GiveTheIdsOfTheLibrary) {
  for (const std::string_view name : {"published", "fallback"}) {
    const JsonValue::Array& texts = reference(name).elements("texts");
    for (const JsonValue& one : reference(name).elements("cases")) {
      SCOPED_TRACE(one.string("name"));
      const Tokenizer tokenizer(read(file_of(one)));
      Encoder encoder(tokenizer), forgetful(tokenizer, 0);
      std::vector<std::string> allowed;
      for (const SpecialToken& special : tokenizer.parts().specials) {
        if (name == "published") allowed.push_back(special.name);
      }
      ASSERT_EQ(texts.size(), one.elements("ids").size());
      for (std::size_t n = 0; n < texts.size(); ++n) {
        const auto numbers = one.elements("ids")[n].integers();
        const Ids wanted(numbers.begin(), numbers.end());
        for (Encoder* each : {&encoder, &encoder, &forgetful}) {
          Ids ids;
          each->encode(texts[n].string(), allowed, ids);
          EXPECT_EQ(ids, wanted) << texts[n].string();
        }
        if (name == "fallback") {
          EXPECT_EQ(tokenizer.decode(wanted), with_plain_blanks(texts[n].string()));
        }
      }
    }
  }
}

TEST(Published, WhatChangesIdsAndIsNotReadIsRefused) {
  const auto refused = [](const char* name, std::string_view member, JsonValue value, std::string_view message) {
    expect_refused(named(name), member, std::move(value), message);
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

// Bytes that are no text come back too.
TEST(ByteFallback, AnyBytesComeBack) {
  for (const char* name : {"llama", "joined", "gemma"}) {
    const Tokenizer tokenizer(read(named(name, "fallback")));
    Encoder encoder(tokenizer);
    for (int first = 0; first < 256; ++first) {
      for (int second = 0; second < 256; second += 5) {
        const std::string text{'a', static_cast<char>(first), static_cast<char>(second), ' ', static_cast<char>(first)};
        ASSERT_EQ(tokenizer.decode(encoder.encode(text)), text) << name << " " << first << " " << second;
      }
    }
  }
}

TEST(ByteFallback, PiecesBeginBeforeBlanksUnlessTokensHoldSome) {
  for (const char* name : {"llama", "joined", "gemma"}) {
    const TokenizerParts parts = read(named(name, "fallback"));
    EXPECT_EQ(parts.pattern(), name == std::string("joined") ? R"([\s\S]+)" : " *[^ ]+| +");
    EXPECT_EQ(parts.end_of_text(), 2) << "</s>";
  }
}

TEST(ByteFallback, WhatIsNotReadIsNamed) {
  const auto refused = [](std::string_view member, JsonValue value, std::string_view message) {
    expect_refused(named("llama", "fallback"), member, std::move(value), message);
  };
  const std::string none =
      "goes with a normalizer or a pre-tokenizer Metaspace that writes blanks as U+2581; there is none";
  refused("normalizer", {}, "model.byte_fallback: " + none);
  refused("normalizer", JsonValue::object({{"type", "NFC"}}), none);
  refused("decoder", JsonValue::object({{"type", "Fuse"}}), "decoder: is not read here; with byte_fallback");
}

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

}  // namespace tally::published_test
