// Finished runs whose checkpoints are damaged afterwards; the best checkpoint; the machines that computed a run.
#include <gtest/gtest.h>

#include "tasks/runs/train.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace fs = std::filesystem;
namespace damage_test {

class Damage : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(run_tally(tiny_training(reference_, "cope", {"--steps=24", "--save-every=3"}), folder_).code, 0);
    ASSERT_EQ(names_of_checkpoints(reference_).back(), "step-00000024.safetensors");
  }

  // A copy of the run with truncated checkpoints.
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

// results.json is not sufficient for a run to count as finished.
TEST_F(Damage, AFinishedRunGoesOnFromItsNewestGoodCheckpoint) {
  const std::string last = "step-00000024.safetensors", aside = run_ + "/checkpoints.old";
  damage({last});
  const auto files = checkpoints_of(run_);
  const std::string metrics = read_file(run_ + "/metrics.jsonl"), results = read_file(run_ + "/results.json");
  const Finished result = resume();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(holds(result.out, "passed over") && holds(result.out, last)) << result.out;
  EXPECT_TRUE(holds(result.out, formatted("what was passed over is now in {}\n", aside))) << result.out;
  expect_same_run(run_, reference_);
  EXPECT_EQ(results_of(run_), results_of(reference_));
  EXPECT_TRUE(read_file(aside + "/" + last) == files.at(last));
  EXPECT_EQ(read_file(aside + "/metrics.jsonl"), metrics);
  EXPECT_EQ(read_file(aside + "/results.json"), results);
  EXPECT_TRUE(holds(resume().out, "nothing to do"));
  // Checkpoints that were removed on purpose are not computed again.
  std::filesystem::remove_all(run_ + "/checkpoints");
  EXPECT_EQ(resume().out, formatted("no trained checkpoint is left in {}/checkpoints; bring the files back, or train "
                                    "again with 'tally resume --restart'\nthe run is finished; nothing to do\n",
                                    run_));
}

// The checkpoints are damaged, or unreadable like the files of another user.
TEST_F(Damage, ARunWithCheckpointsNeverBeginsAgainByItself) {
  for (const bool finished : {true, false}) {
    damage({});
    if (!finished) fs::remove(run_ + "/results.json");
    for (const std::string& name : names_of_checkpoints(run_)) {
      const std::string path = run_ + "/checkpoints/" + name;
      fs::resize_file(path, 3000);
      if (finished) continue;
      fs::remove(path);
      fs::create_symlink(name, path);  // to itself
    }
    const auto files = checkpoints_of(run_);
    const std::string metrics = read_file(run_ + "/metrics.jsonl");
    const Finished refused = run_tally({"resume", run_, "--quiet", "--steps=30"}, folder_);
    EXPECT_EQ(refused.code, 1) << refused.out;
    EXPECT_TRUE(holds(refused.err,
                      "' has 2 checkpoints, the newest of step 24, and none that was trained can be read; "
                      "bring them back (owner, rights), or begin again at step 0: 'tally resume "
                      "--restart'"))
        << refused.err;
    EXPECT_TRUE(checkpoints_of(run_) == files);
    EXPECT_EQ(read_file(run_ + "/metrics.jsonl"), metrics);
    EXPECT_EQ(fs::exists(run_ + "/results.json"), finished);
    const Finished again = run_tally({"resume", run_, "--restart", "--threads=1"}, folder_);
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_TRUE(holds(again.out, "what was trained is now in " + run_ + "/checkpoints.old\n")) << again.out;
    expect_same_run(run_, reference_);
    EXPECT_EQ(results_of(run_), results_of(reference_));
    for (const auto& [name, bytes] : files) {
      EXPECT_TRUE(fs::exists(fs::symlink_status(run_ + "/checkpoints.old/" + name))) << name;
    }
    EXPECT_EQ(read_file(run_ + "/checkpoints.old/metrics.jsonl"), metrics);
  }
}

TEST_F(Damage, ARunWhoseCheckpointsAreGoneDoesNotBeginAgainByItself) {
  const auto refused = [&](const std::string& message) {
    const Finished result = run_tally({"resume", run_, "--steps=30", "--quiet"}, folder_);
    EXPECT_EQ(result.code, 1) << result.out;
    EXPECT_TRUE(holds(result.err, message + ", and its checkpoints are gone; bring them back")) << result.err;
  };
  damage({});
  fs::remove_all(run_ + "/checkpoints");
  const std::string results = read_file(run_ + "/results.json");
  refused("was trained to step 24 before");
  EXPECT_EQ(read_file(run_ + "/results.json"), results);
  fs::remove(run_ + "/results.json");
  refused("was trained to step 24 before");
  write_file(run_ + "/results.json", results);
  fs::remove(run_ + "/metrics.jsonl");
  refused("was trained before");
}

TEST_F(Damage, WhatIsBegunAgainOnPurposeIsMovedAside) {
  damage({});
  const auto files = checkpoints_of(run_);
  ASSERT_EQ(run_tally({"resume", run_, "--restart", "--steps=2", "--quiet"}, folder_).code, 0);
  EXPECT_EQ(names_of_checkpoints(run_), std::vector<std::string>{"step-00000002.safetensors"});
  for (const auto& [name, bytes] : files) EXPECT_TRUE(read_file(run_ + "/checkpoints.old/" + name) == bytes) << name;
  ASSERT_EQ(run_tally({"resume", run_, "--restart", "--quiet"}, folder_).code, 0);
  EXPECT_TRUE(fs::exists(run_ + "/checkpoints.old-2/step-00000002.safetensors"));
}

// Checkpoint rotation opens a checkpoint before it removes it.
TEST_F(Damage, ACheckpointThatCannotBeReadIsNotRemoved) {
  damage({});
  const std::string name = "step-00000001.safetensors";
  write_file(run_ + "/checkpoints/" + name, "of another program");
  const Finished result = run_tally({"resume", run_, "--steps=30", "--quiet"}, folder_);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_FALSE(fs::exists(run_ + "/checkpoints/" + name));
  EXPECT_EQ(read_file(run_ + "/checkpoints.old/" + name), "of another program");
  EXPECT_TRUE(holds(result.out, "not removed: ") && holds(result.out, name)) << result.out;
}

TEST_F(Damage, AFinishedRunStaysAsItIsWhereItsLastCheckpointIsSound) {
  const std::string stray = "step-00000099.safetensors", nothing = "the run is finished; nothing to do\n";
  damage({});
  write_file(run_ + "/checkpoints/" + stray, "damaged");
  EXPECT_EQ(resume().out, nothing);
  std::filesystem::remove(run_ + "/checkpoints/" + stray);
  std::string config = read_file(run_ + "/config.json");  // edited by hand
  config.replace(config.find("\"steps\": 24"), 11, "\"steps\": 30");
  write_file(run_ + "/config.json", config);
  EXPECT_EQ(resume().out, "not applied: steps 24 -> 30\n" + nothing);
  EXPECT_TRUE(checkpoints_of(run_) == checkpoints_of(reference_));
}

// Damaged checkpoints that were ahead do not count among the last two, which are kept.
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
    EXPECT_EQ(folder.restart(), run_ + "/checkpoints.old");
    KilledAfter observer(10);
    EXPECT_THROW(train(folder, observer, never_), Error);
  }
  EXPECT_FALSE(std::filesystem::exists(run_ + "/results.json"));
  EXPECT_EQ(RunFolder::open(run_).newest_checkpoint([](const std::string&) {}).step,
            9);  // no evaluation makes it the best
  EXPECT_EQ(resume().code, 0);
  expect_same_run(run_, reference_);
}

// A model that does not learn has equal evaluations. The best is the first of them, and it is kept.
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
  ASSERT_EQ(run_tally({"resume", run}, folder).code, 0);  // which has no work left
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

}  // namespace damage_test
}  // namespace tally::testing
