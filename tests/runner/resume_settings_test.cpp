// Runs resumed with other settings: their training sequences, and the printed notes.
#include <gtest/gtest.h>

#include "core/io/safetensors.hpp"
#include "tasks/runs/metrics.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace resume_settings_test {

class ResumeSettings : public ::testing::Test {
 protected:
  // The model does not change, so the loss of a step identifies its sequences.
  void train(const std::string& run, const std::vector<std::string>& more) {
    std::vector<std::string> options{"--optimiser.lr=0", "--eval-every=0", "--save-every=0"};
    options.insert(options.end(), more.begin(), more.end());
    ASSERT_EQ(run_tally(tiny_training(folder_ / run, "none", options), folder_).code, 0);
  }
  Finished resume(const std::string& run, std::vector<std::string> more) {
    more.insert(more.begin(), {"resume", folder_ / run, "--quiet", "--threads=1"});
    Finished finished = run_tally(more, folder_);
    EXPECT_EQ(finished.code, 0) << finished.err;
    return finished;
  }
  std::vector<double> losses(const std::string& run) {
    std::vector<double> all;
    for (const StepReport& report : all_of<StepReport>(read_metrics(folder_ / run + "/metrics.jsonl"))) {
      all.push_back(report.loss);
    }
    return all;
  }
  std::string sequences(const std::string& run, int step) {
    return SafetensorsFile::open(folder_ / formatted("{}/checkpoints/step-0000000{}.safetensors", run, step))
        .metadata()
        .at("sequences");
  }

  TemporaryFolder folder_;
};

TEST_F(ResumeSettings, WithAnotherBatchNoSequenceIsLeftOutOrTakenAgain) {
  train("run", {"--steps=3"});
  EXPECT_EQ(sequences("run", 3), "12");
  const Finished half = resume("run", {"--steps=5", "--batch=2"});
  EXPECT_TRUE(holds(half.out, "changed: batch 4 -> 2\n")) << half.out;
  EXPECT_TRUE(holds(half.out, "step 4 begins with training sequence number 12, the next one")) << half.out;
  EXPECT_EQ(sequences("run", 5), "16");
  resume("run", {"--steps=7", "--batch=4"});
  EXPECT_EQ(sequences("run", 7), "24");
  train("fours", {"--steps=6"});
  train("twos", {"--steps=8", "--batch=2"});
  const std::vector<double> run = losses("run"), fours = losses("fours"), twos = losses("twos");
  ASSERT_EQ(run.size(), 7u);
  EXPECT_EQ(run, (std::vector{fours[0], fours[1], fours[2], twos[6], twos[7], fours[4], fours[5]}));
}

TEST_F(ResumeSettings, OtherSequencesAreSaid) {
  const std::string others = "from step 4 on the training sequences are others than before";
  const std::vector<std::pair<std::string, bool>> changes{
      {"--length=32", true},         {"--seed=2", true},
      {"--task.p-ignore=0.5", true}, {"--task.sparse-count=3", false},
      {"--data-seed=3", false},      {"--micro-batches=2", false},
      {"--eval-every=1", false}};
  for (std::size_t n = 0; n < changes.size(); ++n) {
    const auto& [change, other] = changes[n];
    const std::string run = formatted("run{}", n);
    train(run, {"--steps=3"});
    const Finished result = resume(run, {"--steps=4", change});
    EXPECT_EQ(holds(result.out, others), other) << change << "\n" << result.out;
  }
}

TEST_F(ResumeSettings, AJumpOfTheLearningRateIsSaid) {
  ASSERT_EQ(run_tally(tiny_training(folder_ / "run", "none",
                                    {"--optimiser.lr=0.25", "--optimiser.schedule=linear", "--eval-every=0"}),
                      folder_)
                .code,
            0);
  // Linear decay to 0 one step after the last: 1/5 of the rate at step 4 of 4, and 3/8 at step 5 of 7.
  const Finished more = resume("run", {"--steps=7"});
  EXPECT_TRUE(holds(more.out, "the learning rate was 0.05 at step 4 and is 0.09375 at step 5\n")) << more.out;
}

TEST_F(ResumeSettings, DropoutAndAttentionAreNoPartOfTheModel) {
  train("run", {"--steps=3"});
  EXPECT_TRUE(holds(resume("run", {"--steps=4", "--model.dropout=0.1"}).out, "changed: model.dropout 0 -> 0.1\n"));
  const Finished init = run_tally({"resume", folder_ / "run", "--steps=5", "--model.init=gpt2"}, folder_);
  EXPECT_EQ(init.code, 2);
  EXPECT_TRUE(holds(init.err, "the run has its weights already, so this has no effect: model.init")) << init.err;
}

}  // namespace resume_settings_test
}  // namespace tally::testing
