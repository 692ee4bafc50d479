// tally sweep: the grid and its names; skipped, resumed and counted runs; signals; and that its runs equal runs of
// `tally train`.
#include <gtest/gtest.h>

#include <set>

#include "tests/runner/run_files.hpp"

namespace tally::testing::sweep_test {

namespace fs = std::filesystem;

class Sweeps : public Program {
 protected:
  static std::string line(const std::string& encodings, const std::string& options) {
    return tiny("sweep", encodings, options, "sweep");
  }
  Finished sweep(const std::string& encodings, const std::string& options = "") const {
    return tally(line(encodings, options));
  }
  std::set<std::string> runs() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_ / "sweep")) {
      if (entry.is_directory()) names.insert(entry.path().filename());
    }
    return names;
  }
  // The state of the run in sweep.json.
  std::string state(const std::string& run) const {
    const JsonValue list = file_json("sweep/sweep.json");
    for (const JsonValue& entry : list.elements("runs")) {
      if (entry.string("name") == run) return entry.string("state");
    }
    return "";
  }
};

TEST_F(Sweeps, TwoThatNeedTheSameRunsShareThem) {
  const std::string all = line("cope,rope", "--seeds=1..2 --jobs=1 --steps=40");
  const pid_t one = start(all, "one"), other = start(all, "other");
  for (const Finished& finished : {finish(one, "one"), finish(other, "other")}) {
    EXPECT_EQ(finished.code, 0) << finished.out << finished.err;
  }
  EXPECT_EQ(runs().size(), 4u);
  for (const std::string& run : runs()) EXPECT_EQ(state(run), "finished") << run;
}

TEST_F(Sweeps, AGridOfEncodingsSettingsAndSeeds) {
  expect_parts(done(line("cope,rope", "--seeds=1..2 --set pe.cope.p-max=4,8 --set optimiser.lr=1e-3,1e-2 --jobs=2")),
               {"12 of 12 runs finished", "| encoding |"});
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
  const JsonValue config = file_json("sweep/cope-pe.cope.p-max=8-optimiser.lr=1e-2-seed2/config.json");
  EXPECT_EQ(config.at("pe-options").at("cope").integer("p-max"), 8);
  EXPECT_EQ(config.at("optimiser").real("lr"), 0.01);
  EXPECT_EQ(config.at("run").integer("seed"), 2);
}

TEST_F(Sweeps, RunsAreThoseOfTrain) {
  const JsonValue told = json(line("cope", "--seeds=3"));
  EXPECT_EQ(told.at("states").integer("finished"), 1);
  EXPECT_EQ(told.at("report").elements("tables")[0].elements("rows").size(), 1u);
  done(tiny("alone", "cope", "--seed=3"));
  expect_same_run(folder_ / "sweep/cope-seed3", folder_ / "alone");
  EXPECT_EQ(file("sweep/cope-seed3/config.json"), file("alone/config.json"));
}

// Results do not prove that a run is complete.
TEST_F(Sweeps, FinishedRunsAreSkippedAndOthersGoOn) {
  done(line("none,alibi,rope", "--seeds=1"));
  const auto written = fs::last_write_time(folder_ / "sweep/none-seed1/results.json");
  // The state after a kill between the last checkpoint and the results, and a damaged last checkpoint.
  const auto reference = metrics_of(folder_ / "sweep/alibi-seed1");
  fs::remove(folder_ / "sweep/alibi-seed1/results.json");
  const std::string last = folder_ / "sweep/rope-seed1/checkpoints/step-00000004.safetensors", whole = read_file(last);
  write_file(last, "damaged");
  expect_parts(done(line("none,alibi,rope", "--seeds=1..2")), {"6 runs, 1 of them finished before"});
  EXPECT_EQ(fs::last_write_time(folder_ / "sweep/none-seed1/results.json"), written);
  EXPECT_EQ(metrics_of(folder_ / "sweep/alibi-seed1"), reference);
  EXPECT_TRUE(read_file(last) == whole);
  EXPECT_EQ(runs().size(), 6u);
}

TEST_F(Sweeps, ADivergedRunDoesNotStopTheRest) {
  const Finished finished = sweep("none", "--set optimiser.lr=1e30,1e-3 --seeds=1 --jobs=1");
  EXPECT_EQ(finished.code, 1);
  expect_parts(finished.err, {"none-optimiser.lr=1e30-seed1: diverged, exit code 3"});
  expect_parts(finished.out, {"0 of 1, 1 diverged", "1 of 2 runs finished, 1 diverged"});
  EXPECT_EQ(state("none-optimiser.lr=1e30-seed1"), "diverged");
  EXPECT_EQ(state("none-optimiser.lr=1e-3-seed1"), "finished");
  expect_parts(file("sweep/none-optimiser.lr=1e30-seed1.log"), {"not finite"});
  // A later sweep in the same folder keeps the known states.
  done(line("alibi", "--seeds=1"));
  EXPECT_EQ(state("none-optimiser.lr=1e30-seed1"), "diverged");
}

TEST_F(Sweeps, AFolderWithOtherRunsIsRefused) {
  done(line("none", "--seeds=1"));
  refused(line("none", "--seeds=1 --model.layers=1"), "holds a run with other settings: model.layers 2 -> 1", 1);
  write_file(folder_ / "sweep/none-seed1/results.json", "{}");
  refused(line("none", "--seeds=1"), "sweep/none-seed1/results.json", 1);
}

TEST_F(Sweeps, SignalsArePassedOnAndTheSweepGoesOnLater) {
  for (const auto& [signal, code] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    fs::remove_all(folder_ / "sweep");
    const pid_t process = start(line("none,alibi", "--seeds=1 --steps=100000 --jobs=2"));
    EXPECT_TRUE(comes_true([&] { return lines_of(folder_ / "sweep/alibi-seed1/metrics.jsonl") >= 3; }));
    send_signal(process, signal);
    const Finished stopped = finish(process);
    EXPECT_EQ(stopped.code, code) << stopped.err << stopped.out;
    expect_parts(stopped.out, {"alibi-seed1: interrupted", "0 of 2 runs finished, 2 unfinished"});
    // It finished its step and saved a checkpoint.
    EXPECT_FALSE(names_of_checkpoints(folder_ / "sweep/alibi-seed1").empty());
  }
}

TEST_F(Sweeps, WrongUsageStartsNothing) {
  for (const char* options :
       {"--seeds=3..1", "--seeds=x", "--seeds=1,1", "--seeds=1..3,2", "--set model.layer=1,2", "--set model.layers",
        "--seed=1", "--set seed=1,2", "--set model.layers=1,nought", "--set pe.rope.base=1,2", "--jobs=-1",
        "--set model.width=7", "--seeds=9223372036854775807"}) {
    EXPECT_EQ(sweep("cope,alibi", options).code, 2) << options;
  }
  EXPECT_EQ(sweep("cope,rop").code, 2);
  EXPECT_EQ(sweep("cope,cope").code, 2);
  expect_parts(done(line("cope,cope+rope", "--seeds=1,2 --dry-run")), {"sweep/cope+rope-seed2: waiting\n"});
  EXPECT_FALSE(exists("sweep"));
}

}  // namespace tally::testing::sweep_test
