// tally dump: names and shapes of tensors, sequences from a split or from a file, the choice of checkpoint, and refused
// options. outside_test.cpp checks the numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "core/io/npy.hpp"
#include "core/io/safetensors.hpp"
#include "tasks/runs/run_folder.hpp"
#include "tests/runner/program.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace dump_test {

class Dump : public ::testing::Test {
 protected:
  // A trained run with checkpoints of steps 2 and 4.
  void train(const std::string& encoding) {
    const Finished trained = run_tally(tiny_training(run_, encoding), folder_);
    ASSERT_EQ(trained.code, 0) << trained.err;
  }
  Finished dump(std::vector<std::string> options) {
    options.insert(options.begin(), {"dump", run_, "--out", out_});
    return run_tally(options, folder_);
  }

  TemporaryFolder folder_;
  std::string run_ = folder_ / "run", out_ = folder_ / "dump.safetensors";
};

TEST_F(Dump, HoldsWhatTheRunnerPromises) {
  train("cope");
  const Finished finished = dump({"--split", "ood-sparse", "--count", "3", "--gradients"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  const SafetensorsFile file = SafetensorsFile::open(out_);
  std::map<std::string, std::pair<DType, Shape>> expected{
      {"tokens", {DType::i32, {3, 16}}},        {"targets", {DType::i32, {3, 16}}},
      {"loss_mask", {DType::boolean, {3, 16}}}, {"score_mask", {DType::boolean, {3, 16}}},
      {"logits", {DType::f32, {3, 16, 5}}},     {"loss", {DType::f32, {}}},
  };
  for (const std::string layer : {"0", "1"}) {
    for (const std::string what : {"weights", "gates", "positions", "position_weights"}) {
      expected[formatted("blocks.{}.{}", layer, what)] = {DType::f32, {3, 2, 16, 16}};
    }
  }
  const auto checkpoint = RunFolder::open(run_).open_checkpoint(4);
  for (const StoredTensor& value : checkpoint.tensors("model.")) {
    expected["gradients.model." + value.name] = {value.dtype, value.shape};
  }
  EXPECT_EQ(file.entries().size(), expected.size());
  for (const auto& [name, what] : expected) {
    const SafetensorsEntry* entry = file.find(name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_EQ(entry->dtype, what.first) << name;
    EXPECT_EQ(entry->shape, what.second) << name;
  }
  EXPECT_EQ(file.metadata().at("step"), "4");
  EXPECT_EQ(file.metadata().at("split"), "ood-sparse");
}

TEST_F(Dump, MasksAreThoseOfTheTask) {
  ASSERT_EQ(run_tally(tiny_training(run_, "none", {"--task.loss=all"}), folder_).code, 0);
  ASSERT_EQ(dump({"--split", "ood-sparse", "--count", "2"}).code, 0);
  const SafetensorsFile file = SafetensorsFile::open(out_);
  const std::unique_ptr<Task> task = RunFolder::open(run_).config().make_task();
  std::vector<bool> loss, score;
  for (const Example& example : examples_of(*task, "ood-sparse", 0, 2)) {
    loss.insert(loss.end(), example.loss_mask.begin(), example.loss_mask.end());
    score.insert(score.end(), example.score_mask.begin(), example.score_mask.end());
  }
  ASSERT_NE(loss, score);
  EXPECT_EQ(file.read("loss_mask").to_vector<bool>(), loss);
  EXPECT_EQ(file.read("score_mask").to_vector<bool>(), score);
}

// bf16 values are written as f32.
TEST_F(Dump, OfARunInBf16) {
  ASSERT_EQ(run_tally(tiny_training(run_, "cope", {"--precision=bf16"}), folder_).code, 0);
  const Finished finished = dump({"--count", "2", "--gradients"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  const SafetensorsFile file = SafetensorsFile::open(out_);
  for (const SafetensorsEntry& entry : file.entries()) {
    EXPECT_NE(entry.type, "BF16") << entry.name;
    if (entry.type != "F32") continue;
    for (const float value : file.read(entry.name).to_vector<float>()) ASSERT_TRUE(std::isfinite(value)) << entry.name;
  }
  const Tensor weights = file.read("blocks.0.weights");
  const std::vector<float> values = weights.to_vector<float>();
  const auto keys = static_cast<std::size_t>(weights.size(-1));
  for (std::size_t row = 0; row < values.size(); row += keys) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row);
    EXPECT_NEAR(std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(keys), 0.0), 1, 0.01);
  }
}

TEST_F(Dump, ShowTellsTheTypeOfWhatIsStoredInBf16) {
  write_safetensors(out_, {{"x", Tensor::full({3, 2}, 1.5, DType::f32, {}).to(DType::bf16)}});
  const Finished shown = run_tally({"show", out_}, folder_);
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_TRUE(holds(shown.out, "x  BF16  [3, 2]")) << shown.out;
  EXPECT_TRUE(holds(shown.out, "1 tensors, 6 elements, 12 B")) << shown.out;
}

TEST_F(Dump, WithoutGatesOrGradientsThereAreNone) {
  train("alibi");
  ASSERT_EQ(dump({"--count", "1"}).code, 0);
  const SafetensorsFile file = SafetensorsFile::open(out_);
  EXPECT_EQ(file.entries().size(), 10u);
  EXPECT_NE(file.find("blocks.1.weights"), nullptr);
  EXPECT_NE(file.find("blocks.1.position_weights"), nullptr);
  EXPECT_EQ(file.find("blocks.1.gates"), nullptr);
}

TEST_F(Dump, StartChoosesTheSequences) {
  train("none");
  ASSERT_EQ(dump({"--count", "3"}).code, 0);
  const auto three = SafetensorsFile::open(out_).read("tokens").to_vector<std::int32_t>();
  ASSERT_EQ(dump({"--count", "1", "--start", "2"}).code, 0);
  const auto third = SafetensorsFile::open(out_).read("tokens").to_vector<std::int32_t>();
  EXPECT_EQ(third, std::vector<std::int32_t>(three.begin() + 32, three.end()));
}

TEST_F(Dump, TokensOfOnesOwnPredictTheNextToken) {
  train("rope");
  const std::vector<std::int32_t> tokens{0, 3, 2, 4, 1, 3, 0, 4, 1, 4};
  const std::string path = folder_ / "tokens.npy";
  write_npy(path, Tensor::from(tokens, {2, 5}));
  ASSERT_EQ(dump({"--tokens", path, "--gradients"}).code, 0);
  const SafetensorsFile file = SafetensorsFile::open(out_);
  EXPECT_EQ(file.read("tokens").to_vector<std::int32_t>(), tokens);
  EXPECT_EQ(file.read("targets").to_vector<std::int32_t>(), (std::vector<std::int32_t>{3, 2, 4, 1, 0, 0, 4, 1, 4, 0}));
  const std::vector<bool> mask{true, true, true, true, false, true, true, true, true, false};
  EXPECT_EQ(file.read("loss_mask").to_vector<bool>(), mask);
  EXPECT_EQ(file.read("score_mask").to_vector<bool>(), mask);
}

TEST_F(Dump, TokensAreChecked) {
  train("none");
  const std::string path = folder_ / "tokens.npy";
  write_npy(path, Tensor::from(std::vector<std::int64_t>{0, 1, 5}, {1, 3}));
  const Finished outside = dump({"--tokens", path});
  EXPECT_EQ(outside.code, 1);
  EXPECT_NE(outside.err.find("token 2 of sequence 0 is 5, the vocabulary has ids 0 to 4"), std::string::npos)
      << outside.err;
  write_npy(path, Tensor::from(std::vector<float>{0, 1}, {1, 2}));
  EXPECT_NE(dump({"--tokens", path}).err.find("must hold i32 or i64"), std::string::npos);
  write_npy(path, Tensor::from(std::vector<std::int32_t>{1}, {1, 1}));
  EXPECT_NE(dump({"--tokens", path}).err.find("two tokens"), std::string::npos);
  EXPECT_EQ(dump({"--tokens", path, "--split", "train"}).code, 2);
}

TEST_F(Dump, AnyCheckpointThatIsKept) {
  train("none");
  ASSERT_EQ(dump({"--count", "1"}).code, 0);
  const auto newest = SafetensorsFile::open(out_).read("logits").to_vector<float>();
  ASSERT_EQ(dump({"--count", "1", "--checkpoint", "2"}).code, 0);
  const SafetensorsFile older = SafetensorsFile::open(out_);
  EXPECT_EQ(older.metadata().at("step"), "2");
  EXPECT_NE(older.read("logits").to_vector<float>(), newest);
  EXPECT_EQ(dump({"--count", "1", "--checkpoint", "best"}).code, 0);

  const Finished missing = dump({"--checkpoint", "3"});
  EXPECT_EQ(missing.code, 1);
  EXPECT_NE(missing.err.find("keeps no checkpoint of step 3; it has 2, 4"), std::string::npos) << missing.err;
  EXPECT_NE(dump({"--checkpoint", "4x"}).err.find("neither newest, best nor a step"), std::string::npos);
}

TEST_F(Dump, ADamagedCheckpointIsPassedOver) {
  train("none");
  std::string bytes = read_file(run_ + "/checkpoints/step-00000004.safetensors");
  bytes[bytes.size() - 1] = static_cast<char>(bytes[bytes.size() - 1] ^ 1);
  write_file(run_ + "/checkpoints/step-00000004.safetensors", bytes);
  const Finished finished = dump({"--count", "1"});
  EXPECT_EQ(finished.code, 0);
  EXPECT_NE(finished.err.find("passed over"), std::string::npos) << finished.err;
  EXPECT_EQ(SafetensorsFile::open(out_).metadata().at("step"), "2");
}

TEST_F(Dump, RefusesWhatIsNotThere) {
  train("none");
  EXPECT_EQ(dump({"--split", "ood-spars"}).code, 2);
  EXPECT_NE(dump({"--split", "ood-spars"}).err.find("ood-sparse"), std::string::npos);
  const auto expect_usage = [&](const std::vector<std::string>& options, const std::string& message) {
    const Finished refused = dump(options);
    EXPECT_EQ(refused.code, 2) << message;
    EXPECT_NE(refused.err.find(message), std::string::npos) << refused.err;
  };
  expect_usage({"--split", "ood-dense", "--start", "3", "--count", "2"},
               "ood-dense has 4 sequences, asked for 2 from number 3 on");
  expect_usage({"--split", "ood-dense", "--start", "4", "--count", "1"}, "asked for 4");
  expect_usage({"--count", "1000"}, "in-distribution has 6 sequences, asked for 1000 from number 0 on");
  expect_usage({"--count", "0"}, "0 not in range");
  EXPECT_EQ(run_tally({"dump", folder_ / "nothing", "--out", out_}, folder_).code, 1);
  EXPECT_EQ(run_tally({"dump", run_}, folder_).code, 2);
}

}  // namespace dump_test
}  // namespace tally::testing
