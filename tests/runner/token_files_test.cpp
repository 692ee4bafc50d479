// Language models on token files of other programs, whose only content is ids. tests/text/token_file_test.cpp has the
// formats.
#include <gtest/gtest.h>

#include "core/io/checksum.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::token_files_test {

class TokenFiles : public Program {
 protected:
  static constexpr int vocabulary = 50;

  void SetUp() override {
    for (const char* name : {"nanogpt", "uint32"}) std::filesystem::create_directory(folder_ / name);
    write_file(folder_ / "nanogpt/train.bin", tokens(600, 7, 2));
    write_file(folder_ / "nanogpt/val.bin", tokens(90, 11, 2));
    write_file(folder_ / "uint32/train.bin", tokens(600, 7, 4));
    write_file(folder_ / "uint32/val.bin", tokens(90, 11, 4));
    write_file(folder_ / "llm.c_train.bin", llm_c(tokens(600, 7, 2)));
    write_file(folder_ / "llm.c_val.bin", llm_c(tokens(90, 11, 2)));
  }

  // Little-endian, `width` bytes each.
  static std::string tokens(int count, int step, std::size_t width) {
    std::string bytes;
    for (int t = 0; t < count; ++t) {
      bytes += static_cast<char>(t * t / step % vocabulary);
      bytes.append(width - 1, '\0');
    }
    return bytes;
  }
  static std::string llm_c(const std::string& tokens) {
    std::string bytes;
    for (const std::uint32_t word : {20240520u, 1u, static_cast<std::uint32_t>(tokens.size() / 2)}) {
      for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(word >> shift & 255);
    }
    bytes.resize(1024, '\0');
    return bytes + tokens;
  }
  static std::string training(const std::string& run, const std::string& options) {
    return "train " + run +
           " --task=text --pe=rope --length=16 --model.layers=1 --model.width=8 --model.heads=2 --batch=4 --steps=3"
           " --quiet " +
           options;
  }
  double loss_of(const std::string& run) {
    return file_json(run + "/results.json").elements("evaluations")[0].real("loss");
  }
};

TEST_F(TokenFiles, AreTrainedAndEvaluatedOn) {
  expect_parts(done(training("nano", "--data=nanogpt --vocabulary=50")), {"of 89 tokens", "context 16"});
  done(training("llm", "--data=llm.c_train.bin --task.validation=llm.c_val.bin --vocabulary=50"));
  EXPECT_EQ(checkpoints_of(folder_ / "nano"), checkpoints_of(folder_ / "llm")) << "the same tokens";
  const JsonValue trained = file_json("nano/results.json").elements("evaluations")[0];
  const JsonValue& text = trained.at("text");
  const std::string validation = file("nanogpt/val.bin");
  EXPECT_EQ(text.string("token_checksum"), checksum_text(crc32c(std::as_bytes(std::span(validation)))));
  EXPECT_EQ(text.string("tokenizer_checksum"), "");
  EXPECT_FALSE(text.contains("bits_per_byte")) << "nobody knows what the ids stand for";
  EXPECT_FALSE(text.contains("word_perplexity"));

  const JsonValue evaluated = json("eval nano --data llm.c_val.bin").elements("evaluations")[0];
  EXPECT_EQ(evaluated.string("split"), "test");
  EXPECT_EQ(evaluated.real("loss"), trained.real("loss"));
  expect_parts(tally("generate nano").err, {"the prompt is empty"});
  expect_parts(tally("generate nano --prompt=a").err, {"--tokenizer FILE says what they stand for"});
}

// Ids of 32 bits look like 16-bit ids, each followed by 0.
TEST_F(TokenFiles, AreNeverReadAsOtherIds) {
  done(training("nano", "--data=nanogpt --vocabulary=50"));
  refused(training("refused", "--data=uint32 --vocabulary=50"),
          "train.bin: every second number is 0 if it is read as headerless uint16, so it seems to hold uint32; "
          "--token-type uint32 reads it so");
  done(training("wide", "--data=uint32 --vocabulary=50 --token-type=uint32"));
  EXPECT_EQ(loss_of("nano"), loss_of("wide")) << "the same tokens";
  refused("eval nano --data uint32/val.bin", "--token-type");
  EXPECT_EQ(json("eval nano --data uint32/val.bin --token-type=uint32").elements("evaluations")[0].real("loss"),
            loss_of("nano"));
}

TEST_F(TokenFiles, WhatTheyDoNotSayIsAskedFor) {
  for (const auto& [options, message] : std::vector<Refusal>{
           {"--data=llm.c_train.bin", "--tokenizer FILE does, or --vocabulary N"},
           {"--data=nanogpt --vocabulary=20", "and the vocabulary has 20"},
           {"--data=nanogpt --vocabulary=50 --task.documents=separate", "--tokenizer FILE or --end-token ID names it"},
           {"--data=nanogpt --vocabulary=50 --end-token=</s>", "names of tokens are known with --tokenizer FILE"}}) {
    refused(training("refused", options), message);
  }
  EXPECT_FALSE(exists("refused"));
  done(training("separate", "--data=nanogpt --vocabulary=50 --task.documents=separate --end-token=7"));
  EXPECT_EQ(json("generate separate --count=2").integer("prompt_tokens"), 1);
  done("resume separate --steps=4 --quiet");
  write_file(folder_ / "nanogpt/train.npy", "");
  refused(training("refused", "--data=nanogpt --vocabulary=50"), "two files of the split train");
}

}  // namespace tally::testing::token_files_test
