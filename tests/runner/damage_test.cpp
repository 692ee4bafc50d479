// Finished runs whose checkpoints are damaged afterwards; the best checkpoint; the machines that computed a run.
#include <gtest/gtest.h>

#include "core/cpu/parallel.hpp"
#include "tasks/runs/train.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::damage_test {

namespace fs = std::filesystem;

class Damage : public Program {
 protected:
  void SetUp() override {
    done(tiny("reference", "cope", "--steps=24 --save-every=3"));
    ASSERT_EQ(names_of_checkpoints(reference_).back(), "step-00000024.safetensors");
  }

  // A copy of the run with truncated checkpoints.
  void damage(const std::vector<std::string>& names) {
    fs::remove_all(run_);
    fs::copy(reference_, run_, fs::copy_options::recursive);
    for (const std::string& name : names) fs::resize_file(run_ + "/checkpoints/" + name, 3000);
  }
  std::string resume() { return done("resume run --quiet --threads=1"); }

  std::string reference_ = folder_ / "reference", run_ = folder_ / "run";
};

// results.json is not sufficient for a run to count as finished.
TEST_F(Damage, AFinishedRunGoesOnFromItsNewestGoodCheckpoint) {
  const std::string last = "step-00000024.safetensors";
  damage({last});
  const std::string cut = file("run/checkpoints/" + last), metrics = file("run/metrics.jsonl");
  expect_parts(resume(), {"passed over", last, "what was passed over is now in run/checkpoints.old\n"});
  expect_same_run(run_, reference_);
  EXPECT_EQ(results_of(run_), results_of(reference_));
  EXPECT_TRUE(file("run/checkpoints.old/" + last) == cut);
  EXPECT_EQ(file("run/checkpoints.old/metrics.jsonl"), metrics);
  EXPECT_TRUE(exists("run/checkpoints.old/results.json"));
  expect_parts(resume(), {"nothing to do"});
  // Checkpoints that were removed on purpose are not computed again.
  fs::remove_all(run_ + "/checkpoints");
  EXPECT_EQ(resume(),
            "no trained checkpoint is left in run/checkpoints; bring the files back, or train again with 'tally resume "
            "--restart'\nthe run is finished; nothing to do\n");
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
    const std::string metrics = file("run/metrics.jsonl");
    refused("resume run --quiet --steps=30",
            "' has 2 checkpoints, the newest of step 24, and none that was trained can be read; "
            "bring them back (owner, rights), or begin again at step 0: 'tally resume --restart'",
            1);
    EXPECT_TRUE(checkpoints_of(run_) == files);
    EXPECT_EQ(file("run/metrics.jsonl"), metrics);
    EXPECT_EQ(exists("run/results.json"), finished);
    expect_parts(done("resume run --restart --threads=1"), {"what was trained is now in run/checkpoints.old\n"});
    expect_same_run(run_, reference_);
    for (const auto& [name, bytes] : files) {
      EXPECT_TRUE(fs::exists(fs::symlink_status(run_ + "/checkpoints.old/" + name))) << name;
    }
    EXPECT_EQ(file("run/checkpoints.old/metrics.jsonl"), metrics);
  }
}

TEST_F(Damage, ARunWhoseCheckpointsAreGoneDoesNotBeginAgainByItself) {
  const auto gone = [&](const std::string& message) {
    refused("resume run --steps=30 --quiet", message + ", and its checkpoints are gone; bring them back", 1);
  };
  damage({});
  fs::remove_all(run_ + "/checkpoints");
  const std::string results = file("run/results.json");
  gone("was trained to step 24 before");
  EXPECT_EQ(file("run/results.json"), results);
  fs::remove(run_ + "/results.json");
  gone("was trained to step 24 before");
  write_file(run_ + "/results.json", results);
  fs::remove(run_ + "/metrics.jsonl");
  gone("was trained before");
}

// Checkpoint rotation opens a checkpoint before it removes it.
TEST_F(Damage, ACheckpointThatCannotBeReadIsNotRemoved) {
  damage({});
  const std::string name = "/step-00000001.safetensors";
  write_file(run_ + "/checkpoints" + name, "of another program");
  expect_parts(done("resume run --steps=30 --quiet"), {"not removed: ", name});
  EXPECT_FALSE(exists("run/checkpoints" + name));
  EXPECT_EQ(file("run/checkpoints.old" + name), "of another program");
}

TEST_F(Damage, AFinishedRunStaysAsItIsWhereItsLastCheckpointIsSound) {
  const std::string stray = run_ + "/checkpoints/step-00000099.safetensors";
  const std::string nothing = "the run is finished; nothing to do\n";
  damage({});
  write_file(stray, "damaged");
  EXPECT_EQ(resume(), nothing);
  fs::remove(stray);
  std::string config = file("run/config.json");  // edited by hand
  config.replace(config.find("\"steps\": 24"), 11, "\"steps\": 30");
  write_file(run_ + "/config.json", config);
  EXPECT_EQ(resume(), "not applied: steps 24 -> 30\n" + nothing);
  EXPECT_TRUE(checkpoints_of(run_) == checkpoints_of(reference_));
}

// Damaged checkpoints that were ahead do not count among the last two, which are kept.
TEST_F(Damage, WhatIsTrainedAgainIsKept) {
  struct KilledAtStep10 final : TrainObserver {
    void stepped(const StepReport& report) override { check(report.step < 10, "test", "killed"); }
  } observer;
  damage(names_of_checkpoints(reference_));
  {
    const std::atomic<bool> never = false;
    RunFolder folder = RunFolder::open_to_train(run_);
    EXPECT_EQ(folder.restart(), run_ + "/checkpoints.old");
    EXPECT_THROW(train(folder, observer, never), Error);
  }
  EXPECT_FALSE(exists("run/results.json"));
  // No evaluation makes it the best.
  EXPECT_EQ(RunFolder::open(run_).newest_checkpoint([](const std::string&) {}).step, 9);
  resume();
  expect_same_run(run_, reference_);
}

class BestCheckpoint : public Program {};
class Starts : public Program {};

// A model that does not learn has equal evaluations. The best is the first of them, and it is kept.
TEST_F(BestCheckpoint, IsTheEarlierOfEquals) {
  done(tiny("run", "none", "--steps=12 --optimiser.lr=0"));
  expect_parts(results_of(folder_ / "run"), {"\"best_step\": 2,"});
  EXPECT_EQ(checkpoints_of(folder_ / "run").size(), 3U);
  EXPECT_EQ(names_of_checkpoints(folder_ / "run").front(), "step-00000002.safetensors");
}

TEST_F(Starts, EachIsRecordedWithItsMachine) {
  done(tiny("run", "none"));
  done("resume run --steps=6 --threads=3");
  done("resume run");  // which has no work left
  done("resume run --steps=8 --device=cuda-host --precision=tf32");
  const std::vector<StartRecord> starts = all_of<StartRecord>(read_metrics(folder_ / "run/metrics.jsonl"));
  ASSERT_EQ(starts.size(), 3U);
  const std::string report = done("report run");
  for (std::size_t n = 0; n < 3; ++n) {
    const Machine& machine = starts[n].machine;
    EXPECT_EQ(starts[n].step, n == 0 ? 0 : n == 1 ? 4 : 6);
    EXPECT_EQ(machine.device + " " + machine.precision, n == 2 ? "cuda-host tf32" : "cpu f32");
    EXPECT_EQ(machine.processor, processor_text());
    EXPECT_EQ(machine.version, TALLY_VERSION);
    EXPECT_EQ(machine.commit, commit);
    EXPECT_FALSE(machine.blas.empty() || machine.compiler.empty());
    expect_parts(report, {machine.text()});
  }
  EXPECT_EQ(starts[1].machine.threads, 3);
}

}  // namespace tally::testing::damage_test
