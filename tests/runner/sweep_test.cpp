// tally sweep: the grid and its names; skipped, resumed and counted runs; signals; the remaining time; that its runs
// equal runs of `tally train`; workers that share a folder, are killed and restarted, and scripts that start them.
#include <gtest/gtest.h>

#include <set>

#include "core/io/lease.hpp"
#include "tasks/data/task.hpp"
#include "tasks/results/report.hpp"
#include "tasks/runs/run_folder.hpp"
#include "tasks/sweep/run_plan.hpp"
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

RunConfig of_seed(std::int64_t seed) {
  RunConfig config = RunConfig::make("flip-flop", "none", "quick");
  config.set("steps", "200");
  config.run.seed = seed;
  return config;
}

// One run took 100 s, another is half trained, and a third has not begun.
TEST(RunPlans, TheTimeLeftIsThatOfTheMissingSteps) {
  const TemporaryFolder folder;
  const std::string plans = folder / "plan";
  RunFolder::create(plans + "/a", of_seed(1), false)
      .write_results(JsonValue::object({{"best_step", 200}, {"evaluations", JsonValue::array()}, {"seconds", 100.0}}));
  const RunFolder half = RunFolder::create(plans + "/b", of_seed(2), false);
  half.check_can_write_checkpoints(1, 200);
  half.write_checkpoint({100}, {{"x", Tensor::zeros({1})}}, {});
  const auto run = [](const char* name, std::int64_t seed, RunState state) {
    return PlannedRun{name, of_seed(seed), state};
  };
  const CommonOptions common;
  std::vector<PlannedRun> runs;
  runs.push_back(run("a", 1, RunState::finished));
  runs.push_back(run("b", 2, RunState::unfinished));
  EXPECT_NEAR(RunPlan(plans, std::move(runs), common).seconds_left(1).value(), 50, 1e-9);

  runs.clear();
  runs.push_back(run("a", 1, RunState::finished));
  runs.push_back(run("b", 2, RunState::unfinished));
  runs.push_back(run("c", 3, RunState::waiting));
  const RunPlan three(plans, std::move(runs), common);
  EXPECT_NEAR(three.seconds_left(1).value(), 150, 1e-9);
  EXPECT_NEAR(three.seconds_left(2).value(), 100, 1e-9) << "the longest has nobody beside it in the end";
}

// Plans of several tables write to one folder, each its own entries.
TEST(RunPlans, WhatOtherPlansWroteStays) {
  const TemporaryFolder folder;
  const std::string plans = folder / "plan", file = formatted("{}/{}", plans, sweep_file_name);
  RunFolder::create(plans + "/a", of_seed(1), false)
      .write_results(JsonValue::object({{"best_step", 200}, {"evaluations", JsonValue::array()}}));
  const auto entry = [](const char* name, std::int64_t seed) {
    return JsonValue::object({{"name", name}, {"state", "waiting"}, {"config", of_seed(seed).to_json()}});
  };
  write_file(file,
             write_json(JsonValue::object({{"format", 1}, {"runs", JsonValue::Array{entry("a", 1), entry("z", 9)}}})));
  CommonOptions common;
  common.quiet = true;
  std::vector<PlannedRun> runs;
  runs.push_back({"a", of_seed(1), RunState::finished});
  RunPlan(plans, std::move(runs), common).execute(1);
  std::map<std::string, std::string> states;
  const JsonValue after = read_sweep_file(file);
  for (const JsonValue& run : after.elements("runs")) states[run.string("name")] = run.string("state");
  EXPECT_EQ(states, (std::map<std::string, std::string>{{"a", "finished"}, {"z", "waiting"}}));
}

class Workers : public Program {
 protected:
  // A sweep over tiny runs.
  static std::string grid(const std::string& folder, const std::string& options) {
    return tiny(folder, "cope,rope", options, "sweep");
  }
  static std::string worker(const std::string& options = "") {
    return "sweep sweep --worker --jobs=1 --threads=1 " + options;
  }
  // Lists the runs of a grid in the folder.
  void list(const std::string& options) { done(grid("sweep", options + " --print=slurm")); }
  std::int64_t count_of(const char* state) { return json("sweep sweep --dry-run").at("states").integer(state); }
  std::string run(const std::string& name) const { return folder_ / "sweep/" + name; }
  // Writes a claim of another machine.
  void write_claim(int number, const std::string& state, double seconds) const {
    write_file(run(formatted("cope-seed1.claim-{}", number)), write_json(JsonValue::object({{"format", 1},
                                                                                            {"state", state},
                                                                                            {"host", "elsewhere"},
                                                                                            {"process", 7},
                                                                                            {"renewals", 3},
                                                                                            {"time", "2999-01-01"},
                                                                                            {"seconds", seconds},
                                                                                            {"started", 1},
                                                                                            {"boot", "another"},
                                                                                            {"space", "another"}})));
  }
  bool is_at_work(const std::string& name) const {
    return comes_true([&] { return lines_of(run(name) + "/metrics.jsonl") > 3; });
  }
};

TEST_F(Workers, KilledAndStartedAgainTheyFinishEveryRunOnce) {
  const std::string options = "--seeds=1..6 --steps=60 --save-every=10 --eval-every=30";
  done(grid("alone", options));
  const std::string line = grid("sweep", options + " --worker --jobs=1");
  std::vector<pid_t> workers;
  const auto name = [](std::size_t i) { return formatted("worker{}", i); };
  for (std::size_t i = 0; i < 3; ++i) workers.push_back(start(line, name(i)));
  const auto finished = [&] {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(folder_ / "sweep"))
      count += fs::exists(entry.path() / "results.json");
    return count;
  };
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(comes_true([&] { return exists("sweep") && finished() >= 2 * i + 1; }));
    send_signal(workers[i], SIGKILL);
    finish(workers[i], name(i));
    workers[i] = start(line, name(i));
  }
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const Finished ended = finish(workers[i], name(i));
    EXPECT_EQ(ended.code, 0) << ended.err << ended.out;
  }
  for (const auto& entry : fs::directory_iterator(folder_ / "alone")) {
    if (!entry.is_directory()) continue;
    const std::string own = run(entry.path().filename());
    expect_same_run(own, entry.path());
    EXPECT_EQ(results_of(own), results_of(entry.path()));
    int times = 0;
    for (int number = 1; fs::exists(formatted("{}.claim-{}", own, number)); ++number) {
      times += holds(read_file(formatted("{}.claim-{}", own, number)), "\"finished\"");
    }
    EXPECT_EQ(times, 1) << own;
  }
  EXPECT_EQ(count_of("finished"), 12);
}

TEST_F(Workers, AFolderThatListsNothingIsRefused) {
  refused(worker(), "it has no sweep.json", 1);
  EXPECT_FALSE(exists("sweep"));
  list("--seeds=1");
  refused(worker("--only=cope-seed2"), "--only cope-seed2: the sweep has no such run");
  EXPECT_EQ(tally(worker("--seeds=1..2")).code, 2) << "seeds of which grid?";
  write_file(run("sweep.json"), R"({"format":1,"runs":[{"name":"../outside","state":"waiting","config":{}}]})");
  refused(worker(), "'../outside' is no name of a run's folder", 1);
}

// A worker waits for the claim of an active machine. It takes over the claim of a silent machine, even if the clocks
// differ.
TEST_F(Workers, ARunOfAnotherMachineIsLeftToItUntilItIsStale) {
  list("--seeds=1");
  write_claim(1, "working", 2.0);
  const pid_t process = start(worker(), "worker");
  EXPECT_TRUE(comes_true([&] { return exists("sweep/rope-seed1/results.json"); }));
  EXPECT_FALSE(exists("sweep/cope-seed1"));
  EXPECT_EQ(count_of("at work"), 1);
  const Finished finished = finish(process, "worker");
  EXPECT_EQ(finished.code, 0) << finished.err;
  expect_parts(finished.out, {"cope-seed1: elsewhere (process 7) is training it"});
  EXPECT_TRUE(exists("sweep/cope-seed1/results.json"));
  EXPECT_EQ(newest_claim(run("cope-seed1")).number, 2);
}

// Two processes train the same run, for example after a machine was suspended. The one that lost its claim writes
// nothing more.
TEST_F(Workers, OneThatWasTakenOverSavesNothing) {
  done(tiny("one", "cope", "--steps=2"));
  for (const char* claim : {"one.claim-1", "one.claim-2"}) write_file(folder_ / claim, "{}");
  const auto checkpoints = checkpoints_of(folder_ / "one");
  refused("resume one --steps=4 --claim=1", "another process has taken", 1);
  EXPECT_TRUE(checkpoints_of(folder_ / "one") == checkpoints);
  EXPECT_TRUE(exists("one/results.json"));
  done("resume one --steps=4 --claim=2");
}

TEST_F(Workers, AStoppedWorkerGivesItsRunsBack) {
  list("--seeds=1 --steps=100000");
  const pid_t process = start(worker(), "worker");
  EXPECT_TRUE(is_at_work("cope-seed1"));
  EXPECT_EQ(count_of("at work"), 1);
  EXPECT_EQ(count_of("waiting"), 1);
  send_signal(process, SIGTERM);
  const Finished stopped = finish(process, "worker");
  EXPECT_EQ(stopped.code, 143) << stopped.err;
  EXPECT_EQ(newest_claim(run("cope-seed1")).state, "released");
  EXPECT_EQ(count_of("unfinished"), 1);
}

TEST_F(Workers, TheScriptNamesEveryOpenRun) {
  list("--seeds=1,2");
  done(worker("--only=cope-seed2"));
  const std::string script = done("sweep sweep --print=slurm --jobs=2 --threads=1");
  expect_parts(script, {"cope-seed1", "rope-seed1", "rope-seed2", fs::canonical(folder_ / "sweep").string(),
                        "#SBATCH --array=0-1\n"});
  EXPECT_FALSE(holds(script, "cope-seed2")) << "it is finished";
  write_file(folder_ / "script", script);
  EXPECT_EQ(shell("bash -n script").code, 0);
  refused({{"sweep sweep --print=lsf", "lsf"}, {"sweep sweep --print=slurm --worker", "--worker"}});
}

// Simulates one element of the array: it trains its runs, and a signal ends it with a checkpoint and requeues it.
TEST_F(Workers, TheScriptForSlurmGoesBackIntoTheQueue) {
  list("--seeds=1 --steps=100000");
  write_file(folder_ / "script", done("sweep sweep --print=slurm --jobs=1 --threads=1"));
  // A fake scontrol records its arguments and then kills the element.
  fs::create_directory(folder_ / "bin");
  write_file(folder_ / "bin/scontrol", "#!/bin/sh\necho \"$@\" >" + (folder_ / "requeued") + "\nkill -9 $PPID\n");
  fs::permissions(folder_ / "bin/scontrol", fs::perms::owner_all);
  const pid_t process = start_program({"/usr/bin/env", "PATH=" + (folder_ / "bin") + ":/usr/bin:/bin",
                                       "SLURM_ARRAY_TASK_ID=0", "SLURM_JOB_ID=4711", "/bin/bash", folder_ / "script"},
                                      folder_, "script");
  EXPECT_TRUE(is_at_work("cope-seed1"));
  send_signal(process, SIGUSR1);
  const Finished ended = finish(process, "script");
  EXPECT_EQ(ended.code, 128 + SIGKILL) << ended.out << ended.err;
  EXPECT_EQ(file("requeued"), "requeue 4711\n");
  EXPECT_FALSE(names_of_checkpoints(run("cope-seed1")).empty());
  EXPECT_EQ(newest_claim(run("cope-seed1")).state, "released");
  EXPECT_FALSE(exists("sweep/rope-seed1")) << "it begins no other run";
}

}  // namespace tally::testing::sweep_test
