// Finished runs whose checkpoints are damaged afterwards; which checkpoint is the best; what computed a run.
#include <gtest/gtest.h>

#include "tasks/train.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace {

class Damage : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(run_tally(tiny_training(reference_, "cope", {"--steps=24", "--save-every=3"}), folder_).code, 0);
    ASSERT_EQ(names_of_checkpoints(reference_).back(), "step-00000024.safetensors");
  }

  // A copy of the run with these checkpoints cut.
  void damage(const std::vector<std::string>& names) {
    std::filesystem::remove_all(run_);
    std::filesystem::copy(reference_, run_, std::filesystem::copy_options::recursive);
    for (const std::string& name : names) {
      const std::string path = run_ + "/checkpoints/" + name;
      write_file(path, read_file(path).substr(0, 3000));
    }
  }

  Finished resume() { return run_tally({"resume", run_, "--quiet", "--threads=1"}, folder_); }

  TemporaryFolder folder_;
  std::string reference_ = folder_ / "reference", run_ = folder_ / "run";
  const std::atomic<bool> never_ = false;
};

// A run is not finished by what results.json says of it alone.
TEST_F(Damage, AFinishedRunGoesOnFromItsNewestGoodCheckpoint) {
  const std::string last = "step-00000024.safetensors", before = "step-00000021.safetensors";
  for (const std::vector<std::string>& damaged :
       {std::vector{last}, {before, last}, names_of_checkpoints(reference_)}) {
    damage(damaged);
    const Finished result = resume();
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(holds(result.out, "passed over") && holds(result.out, last)) << result.out;
    expect_same_run(run_, reference_);
    EXPECT_EQ(results_of(run_), results_of(reference_));
    EXPECT_TRUE(holds(resume().out, "nothing to do"));
  }
  // What was removed on purpose is not computed again.
  std::filesystem::remove_all(run_ + "/checkpoints");
  EXPECT_TRUE(holds(resume().out, "nothing to do"));
}

TEST_F(Damage, AFinishedRunStaysAsItIsWhereItsLastCheckpointIsSound) {
  const std::string stray = "step-00000099.safetensors", nothing = "the run is finished; nothing to do\n";
  damage({});
  write_file(run_ + "/checkpoints/" + stray, "damaged");
  EXPECT_EQ(resume().out, nothing);
  std::filesystem::remove(run_ + "/checkpoints/" + stray);
  std::string config = read_file(run_ + "/config.json");  // changed by hand
  config.replace(config.find("\"steps\": 24"), 11, "\"steps\": 30");
  write_file(run_ + "/config.json", config);
  EXPECT_EQ(resume().out, "not applied: steps 24 -> 30\n" + nothing);
  EXPECT_TRUE(checkpoints_of(run_) == checkpoints_of(reference_));
}

// Damaged ones that lie ahead do not count among the last two, which are kept.
TEST_F(Damage, WhatIsTrainedAgainIsKept) {
  class KilledAfter final : public TrainObserver {
   public:
    explicit KilledAfter(std::int64_t step) : step_(step) {}
    void stepped(const StepReport& report) override {
      if (report.step == step_) throw Error("killed");
    }

   private:
    std::int64_t step_;
  };
  damage(names_of_checkpoints(reference_));
  {
    RunFolder folder = RunFolder::open_to_train(run_);
    KilledAfter observer(10);
    EXPECT_THROW(train(folder, observer, never_), Error);
  }
  EXPECT_FALSE(std::filesystem::exists(run_ + "/results.json"));
  EXPECT_EQ(RunFolder::open(run_).newest_checkpoint([](const std::string&) {}).step,
            9);  // no evaluation makes it the best
  EXPECT_EQ(resume().code, 0);
  expect_same_run(run_, reference_);
}

// All evaluations of a model that does not learn are equal: the best is the first of them, and it is kept.
TEST(BestCheckpoint, IsTheEarlierOfEquals) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  ASSERT_EQ(run_tally(tiny_training(run, "none", {"--steps=12", "--optimiser.lr=0"}), folder).code, 0);
  EXPECT_TRUE(holds(results_of(run), "\"best_step\": 2,")) << results_of(run);
  EXPECT_TRUE(checkpoints_of(run).contains("step-00000002.safetensors"));
  EXPECT_EQ(checkpoints_of(run).size(), 3U);
}

TEST(Starts, EachIsRecordedWithItsMachine) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  ASSERT_EQ(run_tally(tiny_training(run, "none"), folder).code, 0);
  ASSERT_EQ(run_tally({"resume", run, "--steps=6", "--threads=3"}, folder).code, 0);
  ASSERT_EQ(run_tally({"resume", run}, folder).code, 0);  // which has nothing to do
  ASSERT_EQ(run_tally({"resume", run, "--steps=8", "--device=cuda-host", "--precision=tf32"}, folder).code, 0);
  const std::vector<StartRecord> starts = all_of<StartRecord>(read_metrics(run + "/metrics.jsonl"));
  ASSERT_EQ(starts.size(), 3U);
  EXPECT_EQ(starts[0].step, 0);
  EXPECT_EQ(starts[1].step, 4);
  EXPECT_EQ(starts[2].step, 6);
  EXPECT_EQ(starts[0].machine.threads, 1);
  EXPECT_EQ(starts[1].machine.threads, 3);
  EXPECT_EQ(starts[1].machine.device + " " + starts[1].machine.precision, "cpu f32");
  EXPECT_EQ(starts[2].machine.device + " " + starts[2].machine.precision, "cuda-host tf32");
  for (const StartRecord& start : starts) {
    EXPECT_EQ(start.machine.processor, processor_text());
    EXPECT_EQ(start.machine.version, TALLY_VERSION);
    EXPECT_EQ(start.machine.commit, commit);
    EXPECT_FALSE(start.machine.blas.empty() || start.machine.compiler.empty());
  }
  const Finished report = run_tally({"report", run}, folder);
  for (const StartRecord& start : starts) EXPECT_TRUE(holds(report.out, start.machine.text())) << report.out;
}

}  // namespace
}  // namespace tally::testing
