// Checkpoints record their model, so that a configuration changed by hand is not mistaken for the trained one.
#include "tasks/runs/checkpoint.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/io/safetensors.hpp"
#include "tasks/runs/run_folder.hpp"
#include "tests/error_of.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace model_record_test {

// None of these changes affects the shapes of parameters.
struct Change {
  std::string encoding, from, to;
  std::string name, before, after;
};

const std::vector<Change> changes{
    {"rope", "\"heads\": 2", "\"heads\": 4", "model.heads", "2", "4"},
    {"rope", "\"activation\": \"gelu\"", "\"activation\": \"relu\"", "model.activation", "gelu", "relu"},
    {"rope", "\"base\": 10000", "\"base\": 500", "pe.rope.base", "10000", "500"},
    {"rope", "\"norm-place\": \"pre\"", "\"norm-place\": \"post\"", "model.norm-place", "pre", "post"},
    {"rope", "\"pe\": \"rope\"", "\"pe\": \"alibi\"", "pe", "rope", "alibi"},
    {"cope", "\"position-scale\": \"none\"", "\"position-scale\": \"sqrt-d\"", "pe.cope.position-scale", "none",
     "sqrt-d"}};

class ModelRecords : public ::testing::Test {
 protected:
  // Trains a finished run and a stopped one with the encoding.
  void train(const std::string& encoding) {
    ASSERT_EQ(run_tally(tiny_training(run_, encoding), folder_).code, 0);
    std::filesystem::remove(run_ + "/results.json");
    std::filesystem::remove(run_ + "/checkpoints/step-00000004.safetensors");
    config_ = read_file(run_ + "/config.json");
  }

  void edit(const std::string& from, const std::string& to) {
    std::string text = config_;
    ASSERT_TRUE(holds(text, from)) << from << "\n" << text;
    text.replace(text.find(from), from.size(), to);
    if (from.starts_with("\"pe\"")) {  // its options differ then too
      const std::size_t begin = text.find("\"pe-options\""), end = text.find("\"model\"");
      text.erase(begin, end - begin);
    }
    write_file(run_ + "/config.json", text);
  }

  const TemporaryFolder folder_;
  const std::string run_ = folder_ / "run";
  std::string config_;
};

TEST_F(ModelRecords, AnotherModelIsRefusedWithBothValues) {
  for (const std::string encoding : {"rope", "cope"}) {
    std::filesystem::remove_all(run_);
    train(encoding);
    for (const Change& change : changes) {
      if (change.encoding != encoding) continue;
      edit(change.from, change.to);
      const std::string expected =
          formatted("made with {} {}, the configuration has {}", change.name, change.before, change.after);
      const auto before = checkpoints_of(run_);
      for (const std::vector<std::string>& words :
           {std::vector<std::string>{"eval", run_}, {"resume", run_}, {"convert", run_, folder_ / "weights"}}) {
        const Finished result = run_tally(words, folder_);
        EXPECT_EQ(result.code, 1) << words[0] << change.to;
        EXPECT_TRUE(holds(result.err, expected)) << result.err;
        EXPECT_TRUE(holds(result.err, "checkpoints/step-00000002.safetensors")) << result.err;
      }
      EXPECT_TRUE(checkpoints_of(run_) == before);
    }
    write_file(run_ + "/config.json", config_);
    EXPECT_EQ(run_tally({"eval", run_}, folder_).code, 0);
  }
}

TEST_F(ModelRecords, WhatElseWasChangedIsPrinted) {
  train("cope");
  edit("\"seed\": 1", "\"seed\": 7");
  EXPECT_EQ(run_tally({"eval", run_}, folder_).code, 0);
  const Finished result = run_tally({"resume", run_, "--optimiser.lr=0.25"}, folder_);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(holds(result.out, "changed: seed 1 -> 7\n")) << result.out;
  EXPECT_TRUE(holds(result.out, "changed: optimiser.lr 0.001 -> 0.25\n")) << result.out;
  // It is printed once.
  std::filesystem::remove(run_ + "/results.json");
  EXPECT_FALSE(holds(run_tally({"resume", run_}, folder_).out, "changed")) << result.out;
  EXPECT_TRUE(holds(read_file(run_ + "/config.json"), "\"seed\": 7"));
}

TEST_F(ModelRecords, AFinishedRunSaysWhatItWasNotTrainedWith) {
  ASSERT_EQ(run_tally(tiny_training(run_, "rope"), folder_).code, 0);
  config_ = read_file(run_ + "/config.json");
  edit("\"heads\": 2", "\"heads\": 4");
  const Finished result = run_tally({"resume", run_}, folder_);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(holds(result.out, "not applied: model.heads 2 -> 4\n")) << result.out;
}

TEST_F(ModelRecords, CheckpointsWithoutOneStillLoad) {
  train("cope");
  const std::string path = run_ + "/checkpoints/step-00000002.safetensors";
  NamedTensors tensors;
  Metadata metadata;
  {
    const SafetensorsFile file = SafetensorsFile::open(path);
    metadata = file.metadata();
    for (const auto& entry : file.entries()) tensors.emplace_back(entry.name, file.read(entry.name));
  }
  const auto write = [&] {
    std::erase_if(metadata, [](const auto& entry) { return entry.first.starts_with("checksum"); });
    add_checksums(metadata, tensors);
    write_safetensors(path, tensors, metadata);
  };
  EXPECT_EQ(metadata.erase("model"), 1u);
  write();
  EXPECT_EQ(run_tally({"eval", run_}, folder_).code, 0);
  EXPECT_EQ(run_tally({"resume", run_}, folder_).code, 0);

  // An invalid record counts as a damaged file.
  for (const char* text : {"", "5", "[]", "{\"model.heads\": 2}", "{\"model.heads\": \"2\""}) {
    metadata["model"] = text;
    write();
    const Finished result = run_tally({"eval", run_, "--checkpoint=2"}, folder_);
    EXPECT_EQ(result.code, 1) << text;
    EXPECT_TRUE(holds(result.err, path + ", metadata 'model'")) << result.err;
  }
}

// Settings used only in training and evaluation are excluded. Otherwise resumed runs would end with other bytes.
TEST(ModelRecord, HoldsWhatTheFunctionNeeds) {
  RunConfig config = RunConfig::make("flip-flop", "cope", "quick");
  const ModelRecord record = model_record(config, *config.make_task());
  EXPECT_EQ(record.at("vocabulary"), "w r i 0 1");
  EXPECT_EQ(record.at("pe.cope.p-max"), "64");
  EXPECT_EQ(model_record_from_text(model_record_text(record), "text"), record);
  const std::string counted = "300 tokens", one = "300 tokens, 1a2b3c4d", other = "300 tokens, 5e6f7a8b";
  EXPECT_TRUE(same_vocabulary(one, one));
  EXPECT_FALSE(same_vocabulary(one, other));
  EXPECT_TRUE(same_vocabulary(counted, one)) << "of token files the number of ids is known";
  EXPECT_FALSE(same_vocabulary("301 tokens", one));
  EXPECT_FALSE(same_vocabulary("w r i 0 1", "w r i 0"));
  ModelRecord earlier = record;
  earlier["vocabulary"] = one;
  EXPECT_TRUE(holds(error_of([&] { check_same_model(earlier, config, *config.make_task()); }),
                    "made with 300 tokens of the tokenizer with the checksum 1a2b3c4d, and the configuration has the "
                    "symbols w r i 0 1"));
  for (const auto& [setting, value] : {std::pair{"steps", "1"},
                                       {"seed", "5"},
                                       {"optimiser.lr", "1"},
                                       {"model.dropout", "0.5"},
                                       {"model.init", "gpt2"},
                                       {"task.sparse-count", "1"}}) {
    config.set(setting, value);
    EXPECT_EQ(model_record(config, *config.make_task()), record) << setting;
  }
  RunConfig counting = RunConfig::make("counting", "cope", "quick");
  try {
    check_same_model(record, counting, *counting.make_task());
    ADD_FAILURE() << "nothing is refused";
  } catch (const Error& error) {
    EXPECT_TRUE(holds(error.what(), "made with task flip-flop, the configuration has counting")) << error.what();
  }
}

}  // namespace model_record_test
}  // namespace tally::testing
