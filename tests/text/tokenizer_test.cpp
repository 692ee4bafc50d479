#include "tasks/text/tokenizer.hpp"

#include <random>

#include "core/io/json.hpp"
#include "tasks/text/byte_characters.hpp"
#include "tasks/text/encoder.hpp"
#include "tasks/text/prepare/bpe_training.hpp"
#include "tasks/text/tokenizer_files.hpp"
#include "tests/core/io_files.hpp"

namespace tally::tokenizer_test {

using Ids = std::vector<std::int32_t>;

TokenizerParts trained_on(const std::vector<std::string>& corpus, const BpeTraining& training) {
  const SplitPattern pattern(training.pattern);
  Splitter splitter(pattern);
  PieceCounts counts;
  for (const std::string& text : corpus) count_pieces(splitter, text, counts);
  return train_bpe(counts, training);
}

TokenizerParts small_tokenizer(const std::string& pattern = "gpt2") {
  return trained_on(
      {"the cat sat on the mat, the hat that sat; a cat's hat 1234 1234 \xc3\xa9t\xc3\xa9 \xc3\xa9t\xc3\xa9"},
      {.vocabulary = 300, .pattern = pattern});
}

const JsonValue& reference() {
  static const JsonValue value = read_json(std::string(TALLY_SOURCE_DIR) + "/tests/text/reference/bpe.json");
  return value;
}

Ids ids_of(const JsonValue& array) {
  Ids ids;
  for (const std::int64_t id : array.integers()) ids.push_back(static_cast<std::int32_t>(id));
  return ids;
}

TEST(Bytes, AreNumberedAsByGpt2) {
  EXPECT_EQ(ids_by_byte['!'], 0);
  EXPECT_EQ(ids_by_byte[' '], 220);
  EXPECT_EQ(ids_by_byte['\n'], 198);
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(bytes_of_characters(byte_characters(all)), all);
  EXPECT_EQ(byte_characters(" a\n\xff"),
            "\xc4\xa0"
            "a\xc4\x8a\xc3\xbf");
  for (const char* wrong :
       {" ", "\n", "\xc2\xad", "\xc5\x84", "\xc8\x80", "\xe2\x80\xa2", "a\xf0\x9f\x98\x80", "\xc4\x60"}) {
    EXPECT_FALSE(bytes_of_characters(wrong).has_value()) << wrong;
  }
}

TEST(Bytes, ATokenizerOfBytesAlone) {
  const Tokenizer tokenizer(byte_tokenizer());
  EXPECT_EQ(tokenizer.vocabulary(), 257);
  EXPECT_EQ(tokenizer.special(end_of_text_name), 256);
  Encoder encoder(tokenizer);
  EXPECT_EQ(encoder.encode("! \n<|endoftext|>").size(), 16);
  EXPECT_EQ(encoder.encode("! \n\xff"), (Ids{0, 220, 198, 187}));
  EXPECT_EQ(tokenizer.decode({0, 256, 220}), "! ");
  EXPECT_ERROR(tokenizer.decode({257}), "no token 257; the vocabulary has 257");
  EXPECT_ERROR(tokenizer.decode({-1}), "no token -1");
}

TEST(Bpe, TrainingAndEncodingEqualTheReference) {
  const JsonValue::Array& samples = reference().elements("samples");
  ASSERT_EQ(reference().elements("cases").size(), 24);
  for (const JsonValue& wanted : reference().elements("cases")) {
    std::vector<std::string> corpus;
    for (const JsonValue& text : wanted.elements("corpus")) corpus.push_back(text.string());
    const TokenizerParts parts = trained_on(corpus, {.vocabulary = wanted.integer("vocabulary") + 1,
                                                     .min_count = wanted.integer("min_count"),
                                                     .pattern = wanted.string("pattern")});
    std::vector<std::vector<std::int64_t>> merges, expected;
    for (const MergedPair& merge : parts.merges) merges.push_back({merge.left, merge.right, merge.result});
    for (const JsonValue& merge : wanted.elements("merges")) expected.push_back(merge.integers());
    EXPECT_EQ(merges, expected) << wanted.string("pattern") << " " << corpus[0];
    const Tokenizer tokenizer(parts);
    Encoder warm(tokenizer), forgetful(tokenizer, 0);
    for (int round = 0; round < 2; ++round) {
      for (std::size_t index = 0; index < samples.size(); ++index) {
        const Ids ids = ids_of(wanted.elements("ids")[index]);
        EXPECT_EQ(warm.encode(samples[index].string()), ids) << samples[index].string();
        EXPECT_EQ(forgetful.encode(samples[index].string()), ids) << samples[index].string();
      }
    }
  }
}

TEST(Bpe, TheRoundTripIsExact) {
  const Tokenizer tokenizer(small_tokenizer());
  Encoder encoder(tokenizer, 64);  // a full table is cleared
  std::mt19937 random(7);
  const auto check_round = [&](const std::string& text) { ASSERT_EQ(tokenizer.decode(encoder.encode(text)), text); };
  for (int a = 0; a < 256; ++a) {
    check_round(std::string(1, static_cast<char>(a)));
    for (int b = 0; b < 256; ++b) {
      check_round({static_cast<char>(a), static_cast<char>(b)});
      for (const int c : {0x00, 0x20, 0x61, 0x80, 0xbf, 0xe2, 0xff}) {
        check_round({static_cast<char>(a), static_cast<char>(b), static_cast<char>(c)});
      }
    }
  }
  for (int round = 0; round < 100'000; ++round) {
    std::string text;
    for (std::size_t size = random() % 20; text.size() < size;) {
      text += random() % 2 == 0 ? "the \xc3\xa9"[random() % 6] : static_cast<char>(random());
    }
    check_round(text);
  }
}

TEST(Bpe, LongPiecesAndShortOnesAgree) {
  const Tokenizer tokenizer(small_tokenizer());
  Encoder encoder(tokenizer, 0);
  std::mt19937 random(9);
  for (std::size_t size = 1; size < 80; ++size) {
    std::string word;
    while (word.size() < size) word += "thecasmo"[random() % 8];
    // By the definition, step by step.
    Ids wanted;
    for (const char c : word) wanted.push_back(ids_by_byte[static_cast<unsigned char>(c)]);
    while (true) {
      const MergedPair* best = nullptr;
      std::size_t found = 0;
      for (std::size_t at = 0; at + 1 < wanted.size(); ++at) {
        for (const MergedPair& merge : tokenizer.parts().merges) {
          const bool here = merge.left == wanted[at] && merge.right == wanted[at + 1];
          if (here && (best == nullptr || merge.rank < best->rank)) best = &merge, found = at;
        }
      }
      if (best == nullptr) break;
      wanted[found] = best->result;
      wanted.erase(wanted.begin() + static_cast<std::ptrdiff_t>(found) + 1);
    }
    EXPECT_EQ(encoder.encode(word), wanted) << word;
  }
}

TEST(Bpe, SpecialTokensOnlyWhereAllowed) {
  TokenizerParts parts = byte_tokenizer();
  parts.tokens.emplace_back();
  parts.specials.push_back({"<|end", 257});
  const Tokenizer tokenizer(parts);
  Encoder encoder(tokenizer);
  const std::string text = "a<|endoftext|>b<|end<|endoftext|>";
  const std::vector<std::string> both{"<|end", "<|endoftext|>"};
  Ids ids;
  encoder.encode(text, both, ids);
  EXPECT_EQ(ids, (Ids{64, 256, 65, 257, 256}));
  ids.clear();
  encoder.encode(text, std::span(both).first(1), ids);
  EXPECT_EQ(ids.size(), 1 + 1 + 8 + 1 + 1 + 1 + 8);
  EXPECT_EQ(encoder.encode(text).size(), text.size());
  const std::vector<std::string> unknown{"<pad>"};
  EXPECT_ERROR(encoder.encode(text, unknown, ids), "'<pad>' is no special token");
}

}  // namespace tally::tokenizer_test
