// Runs that are planned: trained several at a time, each by a process of its own, in folder/<name> with what it prints
// in folder/<name>.log; sweep.json keeps what the folders do not tell. Started again, finished runs are skipped and the
// others go on.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tasks/report.hpp"
#include "tasks/runner/child_process.hpp"
#include "tasks/runner/command.hpp"

namespace tally {

struct PlannedRun {
  std::string name;  // of its folder, from the plan's: "cope-model.layers=1-seed2", "flip-flop/cope-seed1"
  RunConfig config;
  RunState state = RunState::waiting;
  std::string too_large = {};  // why it does not fit in memory; empty where it does
};

// "1..3,7" -> 1, 2, 3, 7. Throws UsageError.
std::vector<std::int64_t> parse_seeds(const std::string& text);

class RunPlan {
 public:
  // Throws UsageError for a name that is there twice and for runs that cannot be made. Those that do not fit in memory
  // are passed over, and fail.
  RunPlan(std::string folder, std::vector<PlannedRun> runs, const CommonOptions& common);

  const std::string& folder() const { return folder_; }
  const std::vector<PlannedRun>& runs() const { return runs_; }
  std::string path_of(const PlannedRun& run) const { return folder_ + "/" + run.name; }
  std::int64_t count(RunState state) const;
  // Not finished, and does not fit in memory.
  bool is_too_large(const PlannedRun& run) const;
  // Whether no run is known to fail.
  bool can_finish() const;
  // "unfinished", "does not fit: [memory] this needs about ...".
  std::string state_text(const PlannedRun& run) const;

  // Sees what is there already, and writes nothing. A run that cannot be read has failed, which is said. Throws Error
  // when a folder holds another run.
  void take_stock();
  // Seconds for what is left to train, `jobs` at a time: the arithmetic of the steps that are missing at the rate of
  // the finished runs of the same task, or else of any. Nothing without a finished run.
  std::optional<double> seconds_left(std::int64_t jobs) const;
  // How many at a time when `wanted` is 0: as many as there are cores, which is faster than one after the other with
  // all of them, as far as they fit in memory together; on a GPU one. Never more than are open, at least 1.
  std::int64_t jobs(std::int64_t wanted) const;
  // Trains all that is open until it is done or a signal comes.
  void execute(std::int64_t jobs);
  // What execute did: "4 runs trained in 12 min, 2 at a time with 1 thread each".
  std::string work_text() const;

  // What a command that executed it ends with: "3 of 4 runs finished, 1 diverged", the exit code, states as JSON.
  std::string states_text() const;
  int code() const;
  JsonValue states_json() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Child {
    std::size_t index;  // of its run
    Clock::time_point begin;
  };

  void say(const std::string& text) const;
  // Sets the state of a run that is there, and returns whether it is finished. Throws Error when it is another run.
  bool look_at(PlannedRun& run) const;
  // Whether a run whose process failed did so because another one was quicker to begin it; sets its state then.
  bool left_to_others(PlannedRun& run);
  // Comes back to the run when nothing else is left.
  void wait_for_others(PlannedRun& run);
  void write_state() const;
  void start(std::size_t index);
  void finish(const EndedProcess& ended, bool stopping);

  std::string folder_;
  std::vector<PlannedRun> runs_;
  const CommonOptions& common_;
  CommonOptions child_;      // those of every run
  double bytes_of_run_ = 0;  // that the largest needs
  std::int64_t jobs_ = 1, trained_ = 0;
  double seconds_ = 0;  // that execute took
  std::map<pid_t, Child> children_;
  std::deque<std::size_t> in_use_;  // runs that other processes train
  std::set<std::size_t> told_;      // of which that has been said
};

}  // namespace tally
