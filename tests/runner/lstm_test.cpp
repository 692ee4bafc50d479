// All commands work with a model without attention.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "core/io/safetensors.hpp"
#include "tests/runner/json_output.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace lstm_test {

std::vector<std::string> tiny_lstm(const std::string& run, const std::vector<std::string>& more = {},
                                   const std::string& steps = "4") {
  std::vector<std::string> words{"train", run, "--task=flip-flop", "--model.kind=lstm", "--preset=quick", "--quiet"};
  for (const char* setting :
       {"--length=16", "--model.width=8", "--model.layers=1", "--batch=4", "--eval-every=2", "--log-every=1",
        "--save-every=2", "--optimiser.warmup=0", "--task.eval-count=6", "--task.sparse-count=5",
        "--task.dense-count=4", "--eval-count=0", "--threads=1", "--optimiser.schedule=constant"}) {
    words.emplace_back(setting);
  }
  words.push_back("--steps=" + steps);
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class LstmRun : public ::testing::Test {
 protected:
  Finished tally(const std::vector<std::string>& words) { return run_tally(words, folder_); }

  TemporaryFolder folder_;
  std::string run_ = folder_ / "run";
};

TEST_F(LstmRun, GoesThroughEveryCommand) {
  const JsonValue plan = json_of(tiny_lstm(run_, {"--dry-run"}), folder_);
  EXPECT_EQ(plan.integer("parameters"), 5 * 8 + 4 * 8 * (8 + 8 + 1) + 5 * 8);
  EXPECT_EQ(plan.integer("encoding_parameters"), 0);
  ASSERT_EQ(tally(tiny_lstm(run_)).code, 0);

  EXPECT_EQ(json_of({"eval", run_, "--lengths", "24,48"}, folder_).elements("evaluations").size(), 6u);
  EXPECT_TRUE(json_of({"inspect", run_, "--text=w0i1r"}, folder_).elements("attention").empty());
  EXPECT_TRUE(holds(tally({"inspect", run_}).err, "which has no attention to look at"));

  const std::string file = folder_ / "activations.safetensors";
  ASSERT_EQ(tally({"inspect", run_, "--out", file, "--gradients"}).code, 0);
  const SafetensorsFile dump = SafetensorsFile::open(file);
  EXPECT_TRUE(dump.read("gradients.model.layers.0.recurrent.weight").shape() == (Shape{32, 8}));
  for (const auto& entry : dump.entries()) EXPECT_FALSE(holds(entry.name, "blocks.")) << entry.name;

  const Finished report = tally({"report", run_});
  EXPECT_TRUE(holds(report.out, "| lstm")) << report.out;
  EXPECT_TRUE(holds(tally({"describe", "lstm"}).out, "model.layers.0.recurrent.weight  [4D, D]"));
  const Finished bench = tally({"bench", "step", "--pe=none", "--model.kind=lstm", "--model.width=8", "--batch=2",
                                "--length=16", "--steps=1", "--warmup=0"});
  EXPECT_EQ(bench.code, 0) << bench.err;
}

TEST_F(LstmRun, ResumesToTheSameBits) {
  const std::string whole = folder_ / "whole";
  ASSERT_EQ(tally(tiny_lstm(whole)).code, 0);
  ASSERT_EQ(tally(tiny_lstm(run_, {}, "2")).code, 0);
  ASSERT_EQ(tally({"resume", run_, "--steps", "4", "--threads", "3", "--quiet"}).code, 0);
  EXPECT_TRUE(checkpoints_of(run_).at("step-00000004.safetensors") ==
              checkpoints_of(whole).at("step-00000004.safetensors"));
  EXPECT_EQ(results_of(run_), results_of(whole));
}

TEST_F(LstmRun, RefusesWhatHasNoEffect) {
  const Finished encoding = tally(tiny_lstm(run_, {"--pe=cope"}));
  EXPECT_EQ(encoding.code, 2);
  EXPECT_TRUE(holds(encoding.err, "pe = cope has no effect with kind = lstm")) << encoding.err;
  for (const char* option :
       {"--model.heads=2", "--model.hidden=16", "--model.norm=rms", "--model.attention=composed"}) {
    const Finished finished = tally(tiny_lstm(run_, {option}));
    EXPECT_EQ(finished.code, 2) << option;
    EXPECT_TRUE(holds(finished.err, "has no effect with kind = lstm")) << finished.err;
  }
  const Finished attention = tally({"bench", "attention", "--pe=none", "--model.kind=lstm"});
  EXPECT_EQ(attention.code, 2);
  EXPECT_TRUE(holds(attention.err, "unknown option '--model.kind'")) << attention.err;
  ASSERT_EQ(tally(tiny_lstm(run_)).code, 0);
  const Finished page = tally({"inspect", run_, "--out", folder_ / "page.html"});
  EXPECT_EQ(page.code, 1);
  EXPECT_TRUE(holds(page.err, "no attention to look at")) << page.err;
  EXPECT_EQ(tally({"resume", run_, "--model.kind", "transformer", "--steps", "6"}).code, 2);
}

}  // namespace lstm_test
}  // namespace tally::testing
