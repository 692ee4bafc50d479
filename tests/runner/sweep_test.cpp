// tally sweep: the grid and its names; skipped, resumed and counted runs; signals; and that its runs equal runs of
// `tally train`.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace sweep_test {

namespace fs = std::filesystem;

class Sweeps : public ::testing::Test {
 protected:
  // The words of a sweep over tiny runs.
  std::vector<std::string> words(const std::string& encodings, const std::vector<std::string>& options) const {
    std::vector<std::string> all = tiny_training(sweep_, encodings, options);
    all[0] = "sweep";
    std::erase(all, "--quiet");
    return all;
  }
  Finished sweep(const std::string& encodings, const std::vector<std::string>& options = {}) {
    return run_tally(words(encodings, options), folder_);
  }
  std::set<std::string> runs() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(sweep_)) {
      if (entry.is_directory()) names.insert(entry.path().filename());
    }
    return names;
  }
  // The state of the run in sweep.json.
  std::string state(const std::string& run) const {
    const JsonValue json = parse_json(read_file(sweep_ + "/sweep.json"), {.max_depth = 16, .max_values = 100'000}, "");
    for (const JsonValue& entry : json.elements("runs")) {
      if (entry.string("name") == run) return entry.string("state");
    }
    return "";
  }
  static bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

  TemporaryFolder folder_;
  std::string sweep_ = folder_ / "sweep";
};

TEST_F(Sweeps, TwoThatNeedTheSameRunsShareThem) {
  std::vector<std::string> all = words("cope,rope", {"--seeds=1..2", "--jobs=1", "--steps=40"});
  all.insert(all.begin(), TALLY_RUNNER);
  const pid_t one = start_program(all, folder_, "one"), other = start_program(all, folder_, "other");
  const Finished first = finish_program(one, folder_, "one"), second = finish_program(other, folder_, "other");
  EXPECT_EQ(first.code, 0) << first.out << first.err;
  EXPECT_EQ(second.code, 0) << second.out << second.err;
  EXPECT_EQ(runs().size(), 4u);
  for (const std::string& run : runs()) EXPECT_EQ(state(run), "finished") << run;
}

TEST_F(Sweeps, AGridOfEncodingsSettingsAndSeeds) {
  const Finished finished =
      sweep("cope,rope", {"--seeds=1..2", "--set", "pe.cope.p-max=4,8", "--set", "optimiser.lr=1e-3,1e-2", "--jobs=2"});
  ASSERT_EQ(finished.code, 0) << finished.err << finished.out;
  std::set<std::string> expected;
  for (const std::string seed : {"1", "2"}) {
    for (const std::string lr : {"1e-3", "1e-2"}) {
      expected.insert("rope-optimiser.lr=" + lr + "-seed" + seed);
      for (const std::string p_max : {"4", "8"}) {
        expected.insert("cope-pe.cope.p-max=" + p_max + "-optimiser.lr=" + lr + "-seed" + seed);
      }
    }
  }
  EXPECT_EQ(runs(), expected);
  const JsonValue config = parse_json(read_file(sweep_ + "/cope-pe.cope.p-max=8-optimiser.lr=1e-2-seed2/config.json"),
                                      {.max_depth = 16, .max_values = 1000}, "");
  EXPECT_EQ(config.at("pe-options").at("cope").integer("p-max"), 8);
  EXPECT_EQ(config.at("optimiser").real("lr"), 0.01);
  EXPECT_EQ(config.at("run").integer("seed"), 2);
  EXPECT_TRUE(has(finished.out, "12 of 12 runs finished")) << finished.out;
  EXPECT_TRUE(has(finished.out, "| encoding |")) << finished.out;
}

TEST_F(Sweeps, RunsAreThoseOfTrain) {
  ASSERT_EQ(sweep("cope", {"--seeds=3"}).code, 0);
  const std::string alone = folder_ / "alone";
  ASSERT_EQ(run_tally(tiny_training(alone, "cope", {"--seed=3"}), folder_).code, 0);
  expect_same_run(sweep_ + "/cope-seed3", alone);
  EXPECT_EQ(read_file(sweep_ + "/cope-seed3/config.json"), read_file(alone + "/config.json"));
}

TEST_F(Sweeps, FinishedRunsAreSkippedAndOthersGoOn) {
  ASSERT_EQ(sweep("none", {"--seeds=1"}).code, 0);
  const auto written = fs::last_write_time(sweep_ + "/none-seed1/results.json");
  // The state after a kill between the last checkpoint and the results.
  ASSERT_EQ(sweep("alibi", {"--seeds=1"}).code, 0);
  const auto reference = metrics_of(sweep_ + "/alibi-seed1");
  fs::remove(sweep_ + "/alibi-seed1/results.json");
  const Finished again = sweep("none,alibi", {"--seeds=1..2"});
  ASSERT_EQ(again.code, 0) << again.err << again.out;
  EXPECT_TRUE(has(again.out, "4 runs, 1 of them finished before")) << again.out;
  EXPECT_EQ(fs::last_write_time(sweep_ + "/none-seed1/results.json"), written);
  EXPECT_EQ(metrics_of(sweep_ + "/alibi-seed1"), reference);
  EXPECT_EQ(runs().size(), 4u);
}

// Results do not prove that a run is complete.
TEST_F(Sweeps, AFinishedRunWithADamagedLastCheckpointGoesOn) {
  ASSERT_EQ(sweep("alibi", {"--seeds=1"}).code, 0);
  const std::string run = sweep_ + "/alibi-seed1";
  const std::string last = run + "/checkpoints/" + names_of_checkpoints(run).back();
  const std::string whole = read_file(last);
  write_file(last, "damaged");
  const Finished again = sweep("alibi", {"--seeds=1"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(has(again.out, "1 runs, 0 of them finished before")) << again.out;
  EXPECT_TRUE(read_file(last) == whole);
}

TEST_F(Sweeps, ADivergedRunDoesNotStopTheRest) {
  const Finished finished = sweep("none", {"--set", "optimiser.lr=1e30,1e-3", "--seeds=1", "--jobs=1"});
  EXPECT_EQ(finished.code, 1);
  EXPECT_TRUE(has(finished.err, "none-optimiser.lr=1e30-seed1: diverged, exit code 3")) << finished.err;
  EXPECT_TRUE(has(finished.out, "0 of 1, 1 diverged")) << finished.out;
  EXPECT_TRUE(has(finished.out, "1 of 2 runs finished, 1 diverged")) << finished.out;
  EXPECT_EQ(state("none-optimiser.lr=1e30-seed1"), "diverged");
  EXPECT_EQ(state("none-optimiser.lr=1e-3-seed1"), "finished");
  EXPECT_TRUE(has(read_file(sweep_ + "/none-optimiser.lr=1e30-seed1.log"), "not finite"));
  // A later sweep in the same folder keeps the known states.
  ASSERT_EQ(sweep("alibi", {"--seeds=1"}).code, 0);
  EXPECT_EQ(state("none-optimiser.lr=1e30-seed1"), "diverged");
}

TEST_F(Sweeps, ARunThatCannotStartIsCounted) {
  fs::create_directories(sweep_ + "/none-seed1");
  write_file(sweep_ + "/none-seed1/other.txt", "not a run");
  const Finished finished = sweep("none", {"--seeds=1..2"});
  EXPECT_EQ(finished.code, 1);
  EXPECT_TRUE(has(finished.out, "1 of 2, 1 failed")) << finished.out;
  EXPECT_EQ(read_file(sweep_ + "/none-seed1/other.txt"), "not a run");
}

TEST_F(Sweeps, AFolderWithOtherRunsIsRefused) {
  ASSERT_EQ(sweep("none", {"--seeds=1"}).code, 0);
  const Finished other = sweep("none", {"--seeds=1", "--model.layers=1"});
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(has(other.err, "holds a run with other settings: model.layers 2 -> 1")) << other.err;
}

TEST_F(Sweeps, DamagedResultsAreNamed) {
  ASSERT_EQ(sweep("none", {"--seeds=1"}).code, 0);
  const std::string path = sweep_ + "/none-seed1/results.json";
  write_file(path, "{}");
  const Finished again = sweep("none", {"--seeds=1"});
  EXPECT_EQ(again.code, 1);
  EXPECT_TRUE(has(again.err, path)) << again.err;
}

TEST_F(Sweeps, SignalsArePassedOnAndTheSweepGoesOnLater) {
  for (const auto& [signal, code] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    std::vector<std::string> all = words("none,alibi", {"--seeds=1", "--steps=100000", "--jobs=2"});
    all.insert(all.begin(), TALLY_RUNNER);
    fs::remove_all(sweep_);
    const pid_t process = start_program(all, folder_);
    const std::string metrics = sweep_ + "/alibi-seed1/metrics.jsonl";
    for (int tries = 0; tries < 1000 && (!fs::exists(metrics) || lines_of(metrics) < 3); ++tries) usleep(10'000);
    send_signal(process, signal);
    const Finished stopped = finish_program(process, folder_);
    EXPECT_EQ(stopped.code, code) << stopped.err << stopped.out;
    EXPECT_TRUE(has(stopped.out, "alibi-seed1: interrupted")) << stopped.out;
    EXPECT_TRUE(has(stopped.out, "0 of 2 runs finished, 2 unfinished")) << stopped.out;
    EXPECT_FALSE(names_of_checkpoints(sweep_ + "/alibi-seed1").empty());  // it finished its step and saved a checkpoint
  }
}

TEST_F(Sweeps, AnswersAsJson) {
  const Finished finished = sweep("none", {"--seeds=1,2", "--json"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  const JsonValue json = parse_json(finished.out, {.max_depth = 16, .max_values = 100'000}, "sweep");
  EXPECT_EQ(json.at("states").integer("finished"), 2);
  EXPECT_EQ(json.at("report").elements("tables")[0].elements("rows").size(), 1u);
}

TEST_F(Sweeps, ASuiteTrainsSeveralTasks) {
  const auto suite = [&](const std::vector<std::string>& options, const char* encodings = "--pe=cope,rope") {
    std::vector<std::string> all{"sweep", sweep_, "--suite=recall", encodings, "--seeds=1", "--threads=1"};
    all.insert(all.end(), options.begin(), options.end());
    return run_tally(all, folder_);
  };
  const Finished plan = suite({"--dry-run", "--set", "pe.cope.p-max=4,8"});
  EXPECT_EQ(plan.code, 0) << plan.err;
  for (const char* run :
       {"/mqar/cope-pe.cope.p-max=4-seed1: waiting\n", "/last-x/rope-seed1: ", "/n-back/rope-seed1: "}) {
    EXPECT_TRUE(has(plan.out, sweep_ + run)) << plan.out;
  }
  EXPECT_TRUE(holds(suite({"--task=mqar"}).err, "--task")) << "a suite says which tasks";
  EXPECT_TRUE(holds(suite({"--task.length=64"}).err, "task.length")) << "not all its tasks are as long";
  const Finished wrong = suite({"--model.heads=3"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_TRUE(holds(wrong.err, "mqar quick: ")) << wrong.err;
  const Finished unknown = run_tally({"sweep", sweep_, "--suite=recal", "--pe=cope"}, folder_);
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(holds(unknown.err, "did you mean 'recall'?")) << unknown.err;
  EXPECT_FALSE(fs::exists(sweep_));
  const Finished trained = suite({"--steps=2", "--batch=2", "--model.width=8", "--model.layers=1", "--eval-every=2",
                                  "--optimiser.warmup=0", "--save-every=2", "--task.eval-count=2"},
                                 "--pe=rope");
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_TRUE(holds(trained.out, "Encodings and tasks, in distribution")) << trained.out;
  EXPECT_TRUE(holds(trained.out, "5 of 5 runs finished")) << trained.out;
}

// The preset's 50 warm-up steps are too many for 2 steps, but no run has both.
TEST_F(Sweeps, EachRunOfTheGridMustFitAndNotWhatItGrowsFrom) {
  const auto short_runs = [&](const char* grid, const std::string& suite = "") {
    std::vector<std::string> all{"sweep", sweep_, "--pe=rope", "--steps=2", "--seeds=1", "--dry-run", "--set", grid};
    if (suite.empty()) {
      all.insert(all.end(), {"--task=flip-flop", "--preset=quick"});
    } else {
      all.push_back("--suite=" + suite);
    }
    return run_tally(all, folder_);
  };
  const Finished plan = short_runs("optimiser.warmup=0,1");
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_TRUE(has(plan.out, sweep_ + "/rope-optimiser.warmup=1-seed1: waiting\n")) << plan.out;
  const Finished one_wrong = short_runs("optimiser.warmup=0,3");
  EXPECT_EQ(one_wrong.code, 2);
  EXPECT_TRUE(has(one_wrong.err, "warmup 3 is longer than the run of 2 steps")) << one_wrong.err;
  EXPECT_EQ(short_runs("optimiser.warmup=0", "recall").code, 0);
  const Finished wrong_suite = short_runs("optimiser.warmup=3", "recall");
  EXPECT_EQ(wrong_suite.code, 2);
  EXPECT_TRUE(has(wrong_suite.err, "mqar quick: ")) << wrong_suite.err;
}

TEST_F(Sweeps, WrongUsageStartsNothing) {
  const std::vector<std::vector<std::string>> wrong{
      {"--seeds=3..1"},
      {"--seeds=x"},
      {"--seeds=1,1"},
      {"--seeds=1..3,2"},
      {"--set", "model.layer=1,2"},
      {"--set", "model.layers"},
      {"--seed=1"},
      {"--set", "seed=1,2"},
      {"--set", "model.layers=1,nought"},
      {"--set", "pe.rope.base=1,2"},
      {"--jobs=-1"},
      {"--set", "model.width=7"},
  };
  for (const std::vector<std::string>& options : wrong) {
    EXPECT_EQ(sweep("cope,alibi", options).code, 2) << options.front() << " " << options.back();
  }
  EXPECT_EQ(sweep("cope,rop").code, 2);
  EXPECT_EQ(sweep("cope,cope").code, 2);
  EXPECT_FALSE(fs::exists(sweep_));
  const Finished plan = sweep("cope,cope+rope", {"--seeds=1,2", "--dry-run"});
  EXPECT_EQ(plan.code, 0);
  EXPECT_TRUE(has(plan.out, sweep_ + "/cope+rope-seed2: waiting\n")) << plan.out;
  EXPECT_FALSE(fs::exists(sweep_));
}

}  // namespace sweep_test
}  // namespace tally::testing
