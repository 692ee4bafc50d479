// Checkpoints record their model, so that a configuration changed by hand is not mistaken for the trained one.
#include "tasks/runs/checkpoint.hpp"

#include <gtest/gtest.h>

#include <array>

#include "tests/error_of.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::model_record_test {

class ModelRecords : public Program {
 protected:
  // Trains a run and makes it an unfinished one.
  void train(const std::string& encoding) {
    std::filesystem::remove_all(run_);
    done(tiny("run", encoding));
    std::filesystem::remove(run_ + "/results.json");
    std::filesystem::remove(run_ + "/checkpoints/step-00000004.safetensors");
    config_ = file("run/config.json");
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

  const std::string run_ = folder_ / "run";
  std::string config_;
};

// None of these changes affects the shapes of parameters.
TEST_F(ModelRecords, AnotherModelIsRefusedWithBothValues) {
  train("rope");
  const auto before = checkpoints_of(run_);
  for (const auto& [from, to, names] : std::vector<std::array<std::string, 3>>{
           {"\"heads\": 2", "\"heads\": 4", "model.heads 2, the configuration has 4"},
           {"\"base\": 10000", "\"base\": 500", "pe.rope.base 10000, the configuration has 500"},
           {"\"norm-place\": \"pre\"", "\"norm-place\": \"post\"", "model.norm-place pre, the configuration has post"},
           {"\"pe\": \"rope\"", "\"pe\": \"alibi\"", "pe rope, the configuration has alibi"}}) {
    edit(from, to);
    for (const std::string line : {"eval run", "resume run", "convert run weights"}) {
      refused({{line, "made with " + names}, {line, "checkpoints/step-00000002.safetensors"}}, 1);
    }
    EXPECT_TRUE(checkpoints_of(run_) == before);
  }
  write_file(run_ + "/config.json", config_);
  done("eval run");
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
  const RunConfig counting = RunConfig::make("counting", "cope", "quick");
  EXPECT_TRUE(holds(error_of([&] { check_same_model(record, counting, *counting.make_task()); }),
                    "made with task flip-flop, the configuration has counting"));
}

}  // namespace tally::testing::model_record_test
