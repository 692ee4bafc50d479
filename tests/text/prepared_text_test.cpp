#include "tasks/text/prepare/text_tokens.hpp"

#include "core/io/checksum.hpp"
#include "tests/core/io_files.hpp"

namespace tally::prepared_text_test {

// Two documents of three and no tokens: 9 is the end of text.
const std::string tokens = std::string("\11\0\1\0\2\0\3\0\11\0\11\0", 12);

std::string sum_of(std::string_view bytes) { return checksum_text(crc32c(std::as_bytes(std::span(bytes)))); }

class Prepared : public ::testing::Test {
 protected:
  Prepared() {
    folder_.file("tokenizer.json", "{}");
    folder_.file("train.bin", tokens);
    write_manifest();
  }
  void write_manifest(std::int64_t version = 1, std::int64_t count = 6, std::int64_t end_of_text = 9) {
    const JsonValue split = JsonValue::object({{"files", 2},
                                               {"documents", 2},
                                               {"bytes", 5},
                                               {"words", 1},
                                               {"tokens", count},
                                               {"text_checksum", "0"},
                                               {"token_checksum", sum_of(tokens)}});
    const JsonValue tokenizer =
        JsonValue::object({{"vocabulary", 10}, {"end_of_text", end_of_text}, {"checksum", sum_of("{}")}});
    folder_.file("manifest.json", write_json(JsonValue::object({{"version", version},
                                                                {"splits", JsonValue::object({{"train", split}})},
                                                                {"tokenizer", tokenizer}})));
  }
  PreparedText open() { return PreparedText(folder_.path()); }

  TemporaryFolder folder_;
};

TEST_F(Prepared, IsReadAsItIs) {
  const PreparedText text = open();
  EXPECT_EQ(text.manifest().vocabulary, 10);
  EXPECT_EQ(text.manifest().end_of_text, 9);
  EXPECT_EQ(text.manifest().split("train").documents, 2);
  EXPECT_EQ(text.tokens("train").at(3), 3);
}

TEST_F(Prepared, WhatDoesNotFitIsNamed) {
  EXPECT_ERROR(open().tokens("test"), "there is no split 'test'; there are: train");
  write_manifest(2);
  EXPECT_ERROR(open(), "manifest.json: [manifest] version 2 is not known");
  write_manifest(1, 7);
  EXPECT_ERROR(open(), "train.bin: holds 6 tokens, and the manifest says 7");
  write_manifest(1, 6, 10);
  EXPECT_ERROR(open(), "'end_of_text' is 10");
  write_manifest();
  folder_.file("tokenizer.json", "{ }");
  EXPECT_ERROR(open(), "tokenizer.json: its checksum is");
  folder_.file("tokenizer.json", "{}");
  std::filesystem::remove(folder_.file("train.bin"));
  EXPECT_ERROR(open(), "train.bin: cannot be opened");
  folder_.file("manifest.json", "{\"version\": 1}");
  EXPECT_ERROR(open(), "splits");
}

}  // namespace tally::prepared_text_test
