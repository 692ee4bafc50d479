// Language models on token files of other programs, whose only content is ids.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/io/checksum.hpp"
#include "core/io/json.hpp"
#include "tests/runner/json_output.hpp"
#include "tests/runner/program.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace token_files_test {

namespace fs = std::filesystem;

class TokenFiles : public ::testing::Test {
 protected:
  static constexpr int vocabulary = 50;

  TokenFiles() {
    fs::create_directory(folder_ / "nanogpt");
    write_file(folder_ / "nanogpt/train.bin", tokens(600, 7));
    write_file(folder_ / "nanogpt/val.bin", tokens(90, 11));
    write_file(folder_ / "llm.c_train.bin", llm_c(tokens(600, 7)));
    write_file(folder_ / "llm.c_val.bin", llm_c(tokens(90, 11)));
  }

  // Little-endian, `width` bytes each.
  static std::string tokens(int count, int step, std::size_t width = 2) {
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

  Finished train(const std::string& run, const std::vector<std::string>& more) {
    std::vector<std::string> words{"train",       folder_ / run,      "--task=text",     "--pe=rope",
                                   "--length=16", "--model.layers=1", "--model.width=8", "--model.heads=2",
                                   "--batch=4",   "--steps=3",        "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    return run_tally(words, folder_);
  }
  void expect_refused(const std::vector<std::string>& more, int code, const std::string& message) {
    const Finished refused = train("refused", more);
    EXPECT_EQ(refused.code, code) << refused.err;
    EXPECT_TRUE(holds(refused.err, message)) << refused.err;
    EXPECT_FALSE(fs::exists(folder_ / "refused"));
  }

  TemporaryFolder folder_;
};

TEST_F(TokenFiles, AreTrainedAndEvaluatedOn) {
  const Finished nano = train("nano", {"--data=" + (folder_ / "nanogpt"), formatted("--vocabulary={}", vocabulary)});
  ASSERT_EQ(nano.code, 0) << nano.err;
  EXPECT_TRUE(holds(nano.out, "of 89 tokens; context 16")) << "no bits per byte: " << nano.out;
  const Finished llm =
      train("llm", {"--data=" + (folder_ / "llm.c_train.bin"), "--task.validation=" + (folder_ / "llm.c_val.bin"),
                    formatted("--vocabulary={}", vocabulary)});
  ASSERT_EQ(llm.code, 0) << llm.err;
  EXPECT_EQ(checkpoints_of(folder_ / "nano"), checkpoints_of(folder_ / "llm")) << "the same tokens";

  const JsonValue trained = read_json(folder_ / "nano/results.json").elements("evaluations")[0];
  const JsonValue& text = trained.at("text");
  const std::string validation = tokens(90, 11);
  EXPECT_EQ(text.string("token_checksum"), checksum_text(crc32c(std::as_bytes(std::span(validation)))));
  EXPECT_EQ(text.string("tokenizer_checksum"), "");
  EXPECT_EQ(text.integer("tokens"), 89);
  EXPECT_FALSE(text.contains("bits_per_byte")) << "nobody knows what the ids stand for";
  EXPECT_FALSE(text.contains("word_perplexity"));

  const JsonValue file = json_of({"eval", folder_ / "nano", "--data", folder_ / "llm.c_val.bin"}, folder_);
  EXPECT_EQ(file.elements("evaluations")[0].string("split"), "test");
  EXPECT_EQ(file.elements("evaluations")[0].real("loss"), trained.real("loss"));
  const Finished empty = run_tally({"generate", folder_ / "nano"}, folder_);
  EXPECT_TRUE(holds(empty.err, "the prompt is empty")) << empty.err;
  const Finished prompt = run_tally({"generate", folder_ / "nano", "--prompt=a"}, folder_);
  EXPECT_TRUE(holds(prompt.err, "--tokenizer FILE says what they stand for")) << prompt.err;
}

// Ids of 32 and 64 bits look like 16-bit ids, each followed by 0.
TEST_F(TokenFiles, AreNeverReadAsOtherIds) {
  const std::string all = formatted("--vocabulary={}", vocabulary);
  ASSERT_EQ(train("nano", {"--data=" + (folder_ / "nanogpt"), all}).code, 0);
  for (const auto& [type, width] : {std::pair{"uint32", 4u}, {"int64", 8u}}) {
    fs::create_directory(folder_ / type);
    write_file(folder_ / formatted("{}/train.bin", type), tokens(600, 7, width));
    write_file(folder_ / formatted("{}/val.bin", type), tokens(90, 11, width));
    const std::string data = "--data=" + (folder_ / type);
    expect_refused({data, all}, 2,
                   formatted("train.bin: every second number is 0 if it is read as headerless uint16, so it seems to "
                             "hold {}; --token-type {} reads it so",
                             type, type));
    const Finished trained = train(formatted("{}-run", type), {data, all, formatted("--token-type={}", type)});
    ASSERT_EQ(trained.code, 0) << trained.err;
    const auto loss_of = [&](const std::string& run) {
      return read_json(folder_ / (run + "/results.json")).elements("evaluations")[0].real("loss");
    };
    EXPECT_EQ(loss_of("nano"), loss_of(formatted("{}-run", type))) << "the same tokens";
    const std::vector<std::string> eval{"eval", folder_ / "nano", "--data", folder_ / formatted("{}/val.bin", type)};
    EXPECT_EQ(run_tally(eval, folder_).code, 2);
    std::vector<std::string> named = eval;
    named.push_back(formatted("--token-type={}", type));
    EXPECT_EQ(json_of(named, folder_).elements("evaluations")[0].real("loss"),
              json_of({"eval", folder_ / "nano"}, folder_).elements("evaluations")[0].real("loss"));
  }
}

TEST_F(TokenFiles, TheTokenThatEndsADocumentIsNamed) {
  const std::string data = "--data=" + (folder_ / "nanogpt"), all = formatted("--vocabulary={}", vocabulary);
  const std::string separate = "--task.documents=separate";
  expect_refused({data, all, separate}, 2, "--tokenizer FILE or --end-token ID names it");
  expect_refused({data, all, separate, "--end-token=50"}, 2, "end-token '50' is no id in 0 to 49");
  expect_refused({data, all, separate, "--end-token=</s>"}, 2, "names of tokens are known with --tokenizer FILE");
  const Finished trained = train("separate", {data, all, separate, "--end-token=7"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(json_of({"generate", folder_ / "separate", "--count=2"}, folder_).integer("prompt_tokens"), 1);
  EXPECT_EQ(run_tally({"resume", folder_ / "separate", "--steps=4", "--quiet"}, folder_).code, 0);
}

TEST_F(TokenFiles, WhatTheyDoNotSayIsAskedFor) {
  const std::string folder = "--data=" + (folder_ / "nanogpt"), file = "--data=" + (folder_ / "llm.c_train.bin");
  const std::string all = formatted("--vocabulary={}", vocabulary);
  expect_refused({folder}, 2, "nanogpt/manifest.json is not there");
  expect_refused({file}, 2, "--tokenizer FILE does, or --vocabulary N");
  expect_refused({file, all}, 2, "alone is what a model is evaluated on");
  expect_refused({folder, all, "--task.validation=" + (folder_ / "llm.c_val.bin")}, 2, "stands beside a folder");
  expect_refused({"--data=" + folder_.path().string(), all}, 2, "holds neither manifest.json");
  expect_refused({folder, "--tokenizer=" + (folder_ / "nothing.json")}, 2, "nothing.json");
  expect_refused({folder, "--vocabulary=20"}, 2, "and the vocabulary has 20");
  write_file(folder_ / "nanogpt/train.npy", "");
  expect_refused({folder, all}, 2, "two files of the split train");
}

}  // namespace token_files_test
}  // namespace tally::testing
