// Tokenizers with byte fallback, as SentencePiece makes them: the ids of the library `tokenizers`, and back.
#include <gtest/gtest.h>

#include <vector>

#include "core/io/json.hpp"
#include "tasks/text/encoder.hpp"
#include "tasks/text/tokenizer_files.hpp"
#include "tests/core/io_files.hpp"

namespace tally::fallback_test {

using Ids = std::vector<std::int32_t>;

const JsonValue& reference() {
  static const JsonValue value = read_json(formatted("{}/tests/text/reference/fallback.json", TALLY_SOURCE_DIR));
  return value;
}

const JsonValue& tokenizer_of(std::string_view name) {
  for (const JsonValue& one : reference().elements("cases")) {
    if (one.string("name") == name) return one.at("tokenizer");
  }
  ADD_FAILURE() << name;
  return reference();
}

TokenizerParts parts_of(const JsonValue& tokenizer) { return parse_tokenizer_json(write_json(tokenizer), "made"); }

std::string with_plain_blanks(std::string text) {
  for (std::size_t at = 0; (at = text.find("\xe2\x96\x81", at)) != text.npos;) text.replace(at, 3, " ");
  return text;
}

TEST(ByteFallback, GivesTheIdsOfTheLibrary) {
  for (const JsonValue& one : reference().elements("cases")) {
    SCOPED_TRACE(one.string("name"));
    const Tokenizer tokenizer(parts_of(one.at("tokenizer")));
    Encoder encoder(tokenizer), forgetful(tokenizer, 0);
    const JsonValue::Array &texts = reference().elements("texts"), &ids = one.elements("ids");
    ASSERT_EQ(texts.size(), ids.size());
    for (std::size_t n = 0; n < texts.size(); ++n) {
      Ids wanted;
      for (const std::int64_t id : ids[n].integers()) wanted.push_back(static_cast<std::int32_t>(id));
      EXPECT_EQ(encoder.encode(texts[n].string()), wanted) << texts[n].string();
      EXPECT_EQ(encoder.encode(texts[n].string()), wanted) << "remembered: " << texts[n].string();
      EXPECT_EQ(forgetful.encode(texts[n].string()), wanted) << texts[n].string();
      EXPECT_EQ(tokenizer.decode(wanted), with_plain_blanks(texts[n].string()));
    }
  }
}

// Bytes that are no text come back too.
TEST(ByteFallback, AnyBytesComeBack) {
  for (const char* name : {"llama", "joined", "gemma"}) {
    const Tokenizer tokenizer(parts_of(tokenizer_of(name)));
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
    const TokenizerParts parts = parts_of(tokenizer_of(name));
    EXPECT_EQ(parts.pattern(), name == std::string("joined") ? R"([\s\S]+)" : " *[^ ]+| +");
    EXPECT_EQ(parts.end_of_text(), 2) << "</s>";
  }
}

TEST(ByteFallback, WhatIsNotReadIsNamed) {
  const auto refused = [](std::string_view member, JsonValue value, std::string_view message) {
    JsonValue file = tokenizer_of("llama");
    file.set(std::string(member), std::move(value));
    EXPECT_ERROR(parse_tokenizer_json(write_json(file), "x/tokenizer.json"), message);
    EXPECT_ERROR(parse_tokenizer_json(write_json(file), "x/tokenizer.json"), "x/tokenizer.json");
  };
  const std::string none =
      "goes with a normalizer or a pre-tokenizer Metaspace that writes blanks as U+2581; there is none";
  refused("normalizer", {}, "model.byte_fallback: " + none);
  refused("normalizer", JsonValue::object({{"type", "NFC"}}), none);
  refused("decoder", JsonValue::object({{"type", "Fuse"}}), "decoder: is not read here; with byte_fallback");
}

}  // namespace tally::fallback_test
