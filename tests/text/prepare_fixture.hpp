// Forty texts, and the files prepared from them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/text/prepare/prepare.hpp"
#include "tasks/text/prepare/text_tokens.hpp"
#include "tasks/text/tokenizer_files.hpp"
#include "tests/core/io_files.hpp"

namespace tally {

class Prepare : public ::testing::Test {
 protected:
  Prepare() {
    for (int number = 0; number < 40; ++number) {
      std::string text;
      for (int word = 0; word <= number; ++word) text += formatted("the number {} of {}\n", word * number, number);
      add(formatted("a/text{}.md", number), text);
    }
    settings_.sources = {{folder_.file("source"), ""}};
    settings_.rules.validation = settings_.rules.test = 0.2;
    settings_.vocabulary = 300;
  }
  void add(const std::string& path, std::string_view bytes) {
    std::filesystem::create_directories(std::filesystem::path(folder_.file("source/" + path)).parent_path());
    folder_.file("source/" + path, bytes);
  }
  JsonValue prepare(const std::string& name = "out") { return prepare_text(folder_.file(name), settings_, observer_); }
  std::string all_of(const std::string& name) {
    std::string all;
    for (const char* file : {"manifest.json", "tokenizer.json", "train.bin", "validation.bin", "test.bin",
                             "documents-train.tsv", "documents-validation.tsv", "documents-test.tsv"}) {
      all += formatted("{}:{}\n", file, bytes_of_file(folder_.file(name + "/" + file)));
    }
    return all;
  }

  // The documents of a split, by documents-<split>.tsv.
  struct Document {
    std::string path;
    std::int64_t first = 0, bytes = 0;
    std::vector<std::int32_t> ids = {};
  };
  TextTokens opened(const std::string& name = "out") { return TextTokens({.data = folder_.file(name)}); }
  std::vector<Document> documents(const std::string& split) {
    const TextTokens text = opened();
    const TokenFile& tokens = text.tokens(split);
    std::istringstream lines(bytes_of_file(folder_.file(formatted("out/documents-{}.tsv", split))));
    std::vector<Document> documents;
    std::size_t count = 0;
    for (Document document; std::getline(lines, document.path, '\t');) {
      lines >> document.first >> count >> document.bytes >> std::ws;
      document.ids.resize(count);
      tokens.read(document.first, document.ids);
      documents.push_back(document);
    }
    return documents;
  }
  std::string decoded(const Document& document) {
    return Tokenizer(read_tokenizer(folder_.file("out/tokenizer.json"))).decode(document.ids);
  }

  // Its tokens have the checksums of its manifest, which a training checks.
  void expect_whole(const std::string& name) {
    const TextTokens tokens = opened(name);
    for (const auto& split : tokens.splits()) EXPECT_NO_THROW(tokens.verify(split.name)) << split.name;
  }

  TemporaryFolder folder_;
  PrepareSettings settings_;
  PrepareObserver observer_;
};

}  // namespace tally
