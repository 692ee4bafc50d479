// tally sweep --worker, --dry-run and --print: workers that share a folder, are killed and restarted, and scripts that
// start them.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "core/io/lease.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace worker_test {

namespace fs = std::filesystem;

class Workers : public ::testing::Test {
 protected:
  // The words of a sweep over tiny runs.
  std::vector<std::string> grid(const std::string& folder, const std::vector<std::string>& options) const {
    std::vector<std::string> words = tiny_training(folder, "cope,rope", options);
    words[0] = "sweep";
    return words;
  }
  std::vector<std::string> worker(const std::vector<std::string>& options = {}) const {
    std::vector<std::string> words{"sweep", sweep_, "--worker", "--jobs=1", "--threads=1"};
    words.insert(words.end(), options.begin(), options.end());
    return words;
  }
  // Lists the runs of a grid in the folder.
  void list(const std::vector<std::string>& options) {
    std::vector<std::string> words = grid(sweep_, options);
    words.emplace_back("--print=slurm");
    ASSERT_EQ(run_tally(words, folder_).code, 0);
  }
  JsonValue status() {
    const Finished finished = run_tally({"sweep", sweep_, "--dry-run", "--json"}, folder_);
    EXPECT_EQ(finished.code, 0) << finished.err;
    return parse_json(finished.out, {.max_depth = 16, .max_values = 100'000}, "status");
  }
  pid_t start(std::vector<std::string> words, const std::string& name) const {
    words.insert(words.begin(), TALLY_RUNNER);
    return start_program(words, folder_, name);
  }
  std::string run(const std::string& name) const { return sweep_ + "/" + name; }
  // Writes a claim of another machine.
  void write_claim(const std::string& name, int number, const std::string& state, double seconds) const {
    std::ofstream(formatted("{}.claim-{}", run(name), number)) << write_json(JsonValue::object({{"format", 1},
                                                                                                {"state", state},
                                                                                                {"host", "elsewhere"},
                                                                                                {"process", 7},
                                                                                                {"renewals", 3},
                                                                                                {"time", "2999-01-01"},
                                                                                                {"seconds", seconds},
                                                                                                {"started", 1},
                                                                                                {"boot", "another"},
                                                                                                {"space", "another"}}));
  }

  TemporaryFolder folder_;
  std::string sweep_ = folder_ / "sweep";
};

// tests/machines/workers.py is a larger version.
TEST_F(Workers, KilledAndStartedAgainTheyFinishEveryRunOnce) {
  const std::vector<std::string> options{"--seeds=1..6", "--steps=60", "--save-every=10", "--eval-every=30"};
  const std::string alone = folder_ / "alone";
  ASSERT_EQ(run_tally(grid(alone, options), folder_).code, 0);
  std::vector<std::string> words = grid(sweep_, options);
  words.insert(words.end(), {"--worker", "--jobs=1"});
  std::vector<pid_t> workers;
  const auto name = [](std::size_t i) { return "worker" + std::to_string(i); };
  for (std::size_t i = 0; i < 3; ++i) workers.push_back(start(words, name(i)));
  const auto finished = [&] {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(sweep_)) count += fs::exists(entry.path() / "results.json");
    return count;
  };
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(comes_true([&] { return fs::exists(sweep_) && finished() >= 2 * i + 1; }));
    send_signal(workers[i], SIGKILL);
    finish_program(workers[i], folder_, name(i));
    workers[i] = start(words, name(i));
  }
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const Finished ended = finish_program(workers[i], folder_, name(i));
    EXPECT_EQ(ended.code, 0) << ended.err << ended.out;
  }
  std::size_t runs = 0;
  for (const auto& entry : fs::directory_iterator(alone)) {
    if (!entry.is_directory()) continue;
    const std::string of = entry.path().filename();
    expect_same_run(run(of), entry.path());
    EXPECT_EQ(results_of(run(of)), results_of(entry.path()));
    int times = 0;
    for (int number = 1; fs::exists(formatted("{}.claim-{}", run(of), number)); ++number) {
      times += holds(read_file(formatted("{}.claim-{}", run(of), number)), "\"finished\"");
    }
    EXPECT_EQ(times, 1) << of;
    ++runs;
  }
  EXPECT_EQ(runs, 12u);
  EXPECT_EQ(status().at("states").integer("finished"), 12);
}

TEST_F(Workers, AFolderThatListsNothingIsRefused) {
  const Finished finished = run_tally(worker(), folder_);
  EXPECT_EQ(finished.code, 1);
  EXPECT_TRUE(holds(finished.err, "it has no sweep.json")) << finished.err;
  EXPECT_FALSE(fs::exists(sweep_));
  list({"--seeds=1"});
  const Finished other = run_tally(worker({"--only=cope-seed2"}), folder_);
  EXPECT_EQ(other.code, 2);
  EXPECT_TRUE(holds(other.err, "--only cope-seed2: the sweep has no such run")) << other.err;
  EXPECT_EQ(run_tally(worker({"--seeds=1..2"}), folder_).code, 2) << "seeds of which grid?";
  write_file(sweep_ + "/sweep.json", R"({"format":1,"runs":[{"name":"../outside","state":"waiting","config":{}}]})");
  const Finished outside = run_tally(worker(), folder_);
  EXPECT_EQ(outside.code, 1);
  EXPECT_TRUE(holds(outside.err, "'../outside' is no name of a run's folder")) << outside.err;
}

// A worker waits for the claim of an active machine. It takes over the claim of a silent machine, whatever its clock
// shows.
TEST_F(Workers, ARunOfAnotherMachineIsLeftToItUntilItIsStale) {
  list({"--seeds=1"});
  write_claim("cope-seed1", 1, "working", 2.0);
  const pid_t process = start(worker(), "worker");
  EXPECT_TRUE(comes_true([&] { return fs::exists(run("rope-seed1/results.json")); }));
  EXPECT_FALSE(fs::exists(run("cope-seed1")));
  EXPECT_EQ(status().at("states").integer("at work"), 1);
  const Finished finished = finish_program(process, folder_, "worker");
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(holds(finished.out, "cope-seed1: elsewhere (process 7) is training it")) << finished.out;
  EXPECT_TRUE(fs::exists(run("cope-seed1/results.json")));
  EXPECT_EQ(newest_claim(run("cope-seed1")).number, 2);
}

// A run that another worker found to fail is not tried by every worker; a worker started later tries it once.
TEST_F(Workers, ARunThatFailedElsewhereIsLeftAlone) {
  list({"--seeds=1"});
  write_claim("cope-seed1", 1, "working", 3600);
  const pid_t process = start(worker(), "worker");
  EXPECT_TRUE(comes_true([&] { return holds(read_file(folder_ / "worker.out"), "elsewhere (process 7)"); }));
  write_claim("cope-seed1", 1, "failed", 3600);
  const Finished finished = finish_program(process, folder_, "worker");
  EXPECT_EQ(finished.code, 1);
  EXPECT_TRUE(holds(finished.out, "cope-seed1: failed meanwhile, by elsewhere (process 7)")) << finished.out;
  EXPECT_TRUE(holds(finished.out, "1 of 2 runs finished, 1 failed")) << finished.out;
  EXPECT_EQ(run_tally(worker(), folder_).code, 0);
  EXPECT_EQ(status().at("states").integer("finished"), 2);
}

// Two processes train the same run, for example after a machine was suspended. The one that lost its claim writes
// nothing more.
TEST_F(Workers, OneThatWasTakenOverSavesNothing) {
  const std::string one = folder_ / "one";
  ASSERT_EQ(run_tally(tiny_training(one, "cope", {"--steps=2"}), folder_).code, 0);
  std::ofstream(one + ".claim-1") << "{}";
  const auto checkpoints = checkpoints_of(one);
  std::ofstream(one + ".claim-2") << "{}";
  const Finished refused = run_tally({"resume", one, "--steps=4", "--claim=1"}, folder_);
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(holds(refused.err, "another process has taken")) << refused.err;
  EXPECT_TRUE(checkpoints_of(one) == checkpoints);
  EXPECT_TRUE(fs::exists(one + "/results.json"));
  EXPECT_EQ(run_tally({"resume", one, "--steps=4", "--claim=2"}, folder_).code, 0);
}

// A worker was killed while it created the folder of a run.
TEST_F(Workers, ARunOfWhichTheFolderAloneIsThereIsBegun) {
  list({"--seeds=1"});
  for (const char* name : {"cope-seed1", "rope-seed1"}) fs::create_directory(run(name));
  write_file(run("rope-seed1/config.json.tmp"), "{\"format");
  const Finished finished = run_tally(worker(), folder_);
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_EQ(status().at("states").integer("finished"), 2);
  EXPECT_FALSE(fs::exists(run("rope-seed1/config.json.tmp")));
}

TEST_F(Workers, AStoppedWorkerGivesItsRunsBack) {
  list({"--seeds=1", "--steps=100000"});
  const pid_t process = start(worker(), "worker");
  const std::string metrics = run("cope-seed1/metrics.jsonl");
  EXPECT_TRUE(comes_true([&] { return fs::exists(metrics) && lines_of(metrics) > 3; }));
  const JsonValue before = status();
  EXPECT_EQ(before.at("states").integer("at work"), 1);
  EXPECT_EQ(before.at("states").integer("waiting"), 1);
  send_signal(process, SIGTERM);
  const Finished stopped = finish_program(process, folder_, "worker");
  EXPECT_EQ(stopped.code, 143) << stopped.err;
  EXPECT_EQ(newest_claim(run("cope-seed1")).state, "released");
  EXPECT_EQ(status().at("states").integer("unfinished"), 1);
}

TEST_F(Workers, TheScriptNamesEveryOpenRun) {
  list({"--seeds=1,2"});
  ASSERT_EQ(run_tally(worker({"--only=cope-seed2"}), folder_).code, 0);
  const Finished script = run_tally({"sweep", sweep_, "--print=slurm", "--jobs=2", "--threads=1"}, folder_);
  ASSERT_EQ(script.code, 0) << script.err;
  for (const char* name : {"cope-seed1", "rope-seed1", "rope-seed2"}) EXPECT_TRUE(holds(script.out, name)) << name;
  EXPECT_FALSE(holds(script.out, "cope-seed2")) << "it is finished";
  EXPECT_TRUE(holds(script.out, fs::canonical(sweep_).string())) << script.out;
  EXPECT_TRUE(holds(script.out, "#SBATCH --array=0-1\n")) << script.out;
  write_file(folder_ / "script", script.out);
  EXPECT_EQ(run_program({"/bin/bash", "-n", folder_ / "script"}, folder_).code, 0);
  EXPECT_EQ(run_tally({"sweep", sweep_, "--print=lsf"}, folder_).code, 2);
  EXPECT_EQ(run_tally({"sweep", sweep_, "--print=slurm", "--worker"}, folder_).code, 2);
}

// Simulates one element of the array: it trains its runs, and a signal ends it with a checkpoint and requeues it.
TEST_F(Workers, TheScriptForSlurmGoesBackIntoTheQueue) {
  list({"--seeds=1", "--steps=100000"});
  const Finished script = run_tally({"sweep", sweep_, "--print=slurm", "--jobs=1", "--threads=1"}, folder_);
  ASSERT_EQ(script.code, 0) << script.err;
  write_file(folder_ / "script", script.out);
  // A fake scontrol records its arguments and then kills the element.
  fs::create_directory(folder_ / "bin");
  write_file(folder_ / "bin/scontrol", "#!/bin/sh\necho \"$@\" >" + (folder_ / "requeued") + "\nkill -9 $PPID\n");
  fs::permissions(folder_ / "bin/scontrol", fs::perms::owner_all);
  const pid_t process = start_program({"/usr/bin/env", "PATH=" + (folder_ / "bin") + ":/usr/bin:/bin",
                                       "SLURM_ARRAY_TASK_ID=0", "SLURM_JOB_ID=4711", "/bin/bash", folder_ / "script"},
                                      folder_, "script");
  const std::string metrics = run("cope-seed1/metrics.jsonl");
  EXPECT_TRUE(comes_true([&] { return fs::exists(metrics) && lines_of(metrics) > 3; }));
  send_signal(process, SIGUSR1);
  const Finished ended = finish_program(process, folder_, "script");
  EXPECT_EQ(ended.code, 128 + SIGKILL) << ended.out << ended.err;
  EXPECT_EQ(read_file(folder_ / "requeued"), "requeue 4711\n");
  EXPECT_FALSE(names_of_checkpoints(run("cope-seed1")).empty());
  EXPECT_EQ(newest_claim(run("cope-seed1")).state, "released");
  EXPECT_FALSE(fs::exists(run("rope-seed1"))) << "it begins no other run";
}

}  // namespace worker_test
}  // namespace tally::testing
