// Runs that are planned: trained several at a time, each by a process of its own, in folder/<name> with what it prints
// in folder/<name>.log; sweep.json keeps what the folders do not tell. Started again, finished runs are skipped and the
// others go on. A run is claimed before it is touched, so that any number of plans, on machines that share the folder,
// divide its runs among themselves; when all that is left is others', a plan waits, and takes over what they leave.
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

#include "tasks/command_line/command.hpp"
#include "tasks/results/report.hpp"
#include "tasks/sweep/child_process.hpp"
#include "tasks/sweep/run_claims.hpp"

namespace tally {

struct PlannedRun {
  std::string name;  // of its folder, from the plan's: "cope-model.layers=1-seed2", "flip-flop/cope-seed1"
  RunConfig config;
  RunState state = RunState::waiting;
  std::string too_large = {};  // why it does not fit in memory; empty where it does
};

// "1..3,7" -> 1, 2, 3, 7. Throws UsageError.
std::vector<std::int64_t> parse_seeds(const std::string& text);

// Those that the folder's sweep.json lists. Throws Error when there is none, or a run that is not understood.
std::vector<PlannedRun> listed_runs(const std::string& folder);

class RunPlan {
 public:
  // Throws UsageError for a name that is there twice and for runs that cannot be made. Those that do not fit in memory
  // are passed over, and fail. seconds: of a lease on a run.
  RunPlan(std::string folder, std::vector<PlannedRun> runs, const CommonOptions& common,
          double seconds = lease_seconds);

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
  // Of what it does itself, sweep.json is then told only how runs ended badly: for many plans at once.
  void work_beside_others() { beside_others_ = true; }
  // The memory that the largest run needs.
  double bytes_of_run() const { return bytes_of_run_; }
  // Trains all that is open until it is done, by whomever, or a signal comes.
  void execute(std::int64_t jobs);
  // Makes the folder, and lists the runs in its sweep.json.
  void write_list();
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
    bool lost = false;  // its claim; it has been ended for that
  };

  void say(const std::string& text) const;
  // Sets the state of a run that is there, and returns whether it is finished. Throws Error when it is another run.
  bool look_at(PlannedRun& run) const;
  // Whether a run whose process failed did so because another one was quicker to begin it; sets its state then.
  bool left_to_others(PlannedRun& run);
  // Comes back to the run when no other is to be begun.
  void wait_for_others(PlannedRun& run, const std::string& who);
  // Notes how far the run is.
  void note(const PlannedRun& run) const;
  void write_state() const;
  // Begins as many runs as there is room for.
  void fill();
  void start(std::size_t index);
  void start_claimed(std::size_t index);
  // Ends the runs whose claims are lost.
  void renew_claims();
  void finish(const EndedProcess& ended, bool stopping);

  std::string folder_;
  std::vector<PlannedRun> runs_;
  const CommonOptions& common_;
  CommonOptions child_;      // those of every run
  double bytes_of_run_ = 0;  // that the largest needs
  RunClaims claims_;
  bool beside_others_ = false;
  std::int64_t jobs_ = 1, trained_ = 0;
  double seconds_ = 0;    // that execute took
  std::size_t next_ = 0;  // the first run that has not been looked at
  std::map<pid_t, Child> children_;
  std::deque<std::size_t> in_use_;  // runs that other processes train
  std::set<std::size_t> told_;      // of which that has been said
};

}  // namespace tally
