// Every command refuses work that does not fit in memory, with an estimate, before it starts.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace memory_test {

void expect_too_large(const Finished& result, const std::vector<std::string>& parts) {
  EXPECT_EQ(result.code, 1) << result.out;
  // An estimate that overflows is reported as a lower bound.
  EXPECT_TRUE(holds(result.err, "[memory] this needs about ") || holds(result.err, "[memory] this needs more than "))
      << result.err;
  EXPECT_TRUE(holds(result.err, ", but there are ")) << result.err;
  for (const std::string& part : parts) EXPECT_TRUE(holds(result.err, part)) << part << "\n" << result.err;
}

class MemoryOfARun : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(run_tally(tiny_training(run_, "cope"), folder_).code, 0); }

  void replace_in_config(const std::string& from, const std::string& to) {
    std::string text = read_file(run_ + "/config.json");
    const std::size_t found = text.find(from);
    ASSERT_NE(found, std::string::npos) << text;
    write_file(run_ + "/config.json", text.replace(found, from.size(), to));
  }
  // The configuration asks for a model of two hundred terabytes, while the checkpoints belong to a small one.
  void ask_for_a_huge_model() {
    replace_in_config("\"layers\": 2", "\"layers\": 1000");
    replace_in_config("\"width\": 8", "\"width\": 65536");
  }

  TemporaryFolder folder_;
  std::string run_ = folder_ / "run", out_ = folder_ / "out.safetensors";
};

TEST_F(MemoryOfARun, AHugeModelIsRefused) {
  ask_for_a_huge_model();
  const std::vector<std::vector<std::string>> commands{
      {"eval", run_}, {"convert", run_, out_}, {"inspect", run_, "--out", out_}, {"inspect", run_, "--text=w0r"}};
  for (const std::vector<std::string>& words : commands) {
    expect_too_large(run_tally(words, folder_), {"parameters", "checkpoint"});
  }
  std::filesystem::remove_all(run_ + "/checkpoints");
  for (const std::vector<std::string>& words : commands) {
    const Finished result = run_tally(words, folder_);
    EXPECT_EQ(result.code, 1) << words[0];
    EXPECT_TRUE(holds(result.err, "has no checkpoint any more")) << result.err;
  }
}

TEST_F(MemoryOfARun, DumpRefusesMoreSequencesThanFit) {
  const std::vector<std::string> words{"inspect", run_, "--out", out_, "--split=train", "--count=1000000000"};
  expect_too_large(run_tally(words, folder_), {"activations"});
  std::vector<std::string> with_gradients = words;
  with_gradients.emplace_back("--gradients");
  expect_too_large(run_tally(with_gradients, folder_), {"activations", "gradients"});
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(MemoryOfARun, PredictRefusesATextWhoseAttentionDoesNotFit) {
  std::string text;
  for (int n = 0; n < 32'000; ++n) text += "w0r0";
  expect_too_large(run_tally({"inspect", run_, "--text", text}, folder_), {"activations"});
}

TEST(Memory, BenchRefusesSizesThatDoNotFit) {
  const TemporaryFolder folder;
  for (const char* what : {"step", "attention"}) {
    expect_too_large(run_tally({"bench", what, "--length=1048576", "--batch=1024"}, folder), {"activations"});
  }
  expect_too_large(run_tally({"bench", "step", "--model.layers=1000", "--model.width=65536"}, folder),
                   {"parameters", "optimiser"});
  // One of several combinations is too large: the check of all of them precedes the first measurement.
  const Finished one = run_tally({"bench", "attention", "--set", "length=8,1048576"}, folder);
  expect_too_large(one, {"activations"});
  EXPECT_EQ(one.out, "");
}

}  // namespace memory_test
}  // namespace tally::testing
