// tally sweep --worker, --dry-run and --print: workers that share a folder, are killed and restarted, and scripts that
// start them.
#include <gtest/gtest.h>

#include "core/io/lease.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::worker_test {

namespace fs = std::filesystem;

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

// tests/machines/workers.py is a larger version.
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

}  // namespace tally::testing::worker_test
