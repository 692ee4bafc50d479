// Runs resumed with other settings: their training sequences and learning rates.
#include <gtest/gtest.h>

#include "tasks/runs/metrics.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::resume_settings_test {

class ResumeSettings : public Program {
 protected:
  // The model does not change, so the loss of a step identifies its sequences.
  void train(const std::string& run, const std::string& more) {
    done(tiny(run, "none", "--optimiser.lr=0 --eval-every=0 --save-every=0 " + more));
  }
  std::string resume(const std::string& run, const std::string& more) {
    return done("resume " + run + " --quiet --threads=1 " + more);
  }
  std::vector<double> losses(const std::string& run) {
    std::vector<double> all;
    for (const StepReport& report : all_of<StepReport>(read_metrics(folder_ / run + "/metrics.jsonl"))) {
      all.push_back(report.loss);
    }
    return all;
  }
  std::string sequences(int step) {
    return SafetensorsFile::open(folder_ / formatted("run/checkpoints/step-0000000{}.safetensors", step))
        .metadata()
        .at("sequences");
  }
};

TEST_F(ResumeSettings, WithAnotherBatchNoSequenceIsLeftOutOrTakenAgain) {
  train("run", "--steps=3");
  EXPECT_EQ(sequences(3), "12");
  expect_parts(resume("run", "--steps=5 --batch=2"), {"changed: batch 4 -> 2\n"});
  EXPECT_EQ(sequences(5), "16");
  resume("run", "--steps=7 --batch=4");
  EXPECT_EQ(sequences(7), "24");
  train("fours", "--steps=6");
  train("twos", "--steps=8 --batch=2");
  const std::vector<double> run = losses("run"), fours = losses("fours"), twos = losses("twos");
  ASSERT_EQ(run.size(), 7u);
  EXPECT_EQ(run, (std::vector{fours[0], fours[1], fours[2], twos[6], twos[7], fours[4], fours[5]}));
}

// A run resumed for more steps before its cooldown equals one planned with these steps.
TEST_F(ResumeSettings, StableStepsAreThoseOfALongerRun) {
  const std::string stable = "--optimiser.schedule=wsd --optimiser.cooldown=0.25 --optimiser.warmup=2";
  done(tiny("run", "rope", stable + " --steps=8"));
  done(tiny("straight", "rope", stable + " --steps=12"));
  std::filesystem::remove(folder_ / "run/checkpoints/step-00000008.safetensors");
  std::filesystem::remove(folder_ / "run/results.json");
  resume("run", "--steps=12");
  const std::string last = "/checkpoints/step-00000012.safetensors";
  EXPECT_TRUE(file("run" + last) == file("straight" + last));
  refused(tiny("new", "rope", "--optimiser.schedule=wsd --optimiser.cooldown=0.9 --optimiser.warmup=2 --steps=8"),
          "warmup 2 and a cooldown of 7 steps are longer than the run of 8 steps");
}

TEST_F(ResumeSettings, DropoutIsNoPartOfTheModelAndInitialValuesAre) {
  train("run", "--steps=3");
  expect_parts(resume("run", "--steps=4 --model.dropout=0.1"), {"changed: model.dropout 0 -> 0.1\n"});
  refused(
      {{"resume run --steps=5 --model.init=gpt2", "the run has its weights already, so this has no effect: model.init"},
       {"resume run --model.qk-norm=full --steps=8", "the model of a run cannot change: model.qk-norm none -> full"}});
}

}  // namespace tally::testing::resume_settings_test
