// A plan trains runs, several at a time, each in a process of its own. A run's folder is folder/<name>, and its output
// goes to folder/<name>.log. sweep.json keeps the facts that the run folders do not hold. A restarted plan skips
// finished runs and resumes the others.
//
// A plan claims a run before it touches it, so any number of plans on machines that share the folder divide the runs
// among themselves. When only runs of others are left, a plan waits and takes over abandoned ones.
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
#include "tasks/sweep/run_claims.hpp"

namespace tally {

// Starts tally as a child process: a sweep trains several small models at a time this way.

// Starts tally with the arguments and appends stdout and stderr to the file `log`. Signals of the terminal do not
// reach it, and it gets SIGTERM when this process ends in any way. Throws Error if it cannot be started.
pid_t start_tally(const std::vector<std::string>& arguments, const std::string& log);

struct EndedProcess {
  pid_t process;
  int code;  // its exit code, or 128 + the signal that ended it
};

// A child that has ended; nothing after `milliseconds` without one, or after a signal.
std::optional<EndedProcess> wait_for_child(int milliseconds);

struct PlannedRun {
  std::string name;  // of its folder, relative to the plan's: "cope-model.layers=1-seed2", "flip-flop/cope-seed1"
  RunConfig config;
  RunState state = RunState::waiting;
  std::string too_large = {};  // why it does not fit in memory; empty if it fits
};

// "1..3,7" -> 1, 2, 3, 7. Throws UsageError.
std::vector<std::int64_t> parse_seeds(const std::string& text);

// The runs listed in the folder's sweep.json. Throws Error if the file is missing or a run cannot be parsed.
std::vector<PlannedRun> listed_runs(const std::string& folder);

class RunPlan {
 public:
  // Throws UsageError for a repeated name. seconds: the duration of a lease on a run.
  RunPlan(std::string folder, std::vector<PlannedRun> runs, const CommonOptions& common,
          double seconds = lease_seconds);

  const std::string& folder() const { return folder_; }
  const std::vector<PlannedRun>& runs() const { return runs_; }
  std::string path_of(const PlannedRun& run) const { return folder_ + "/" + run.name; }
  std::int64_t count(RunState state) const;
  // Whether it is unfinished and does not fit in memory.
  bool is_too_large(const PlannedRun& run) const;
  // Whether no run is known to fail.
  bool can_finish() const;
  // After take_stock(): the state of each run, the step that it has saved, and who trains it; the time left with `jobs`
  // runs at a time. Writes nothing. Exit code 1 if a run is known to fail.
  Result overview(std::int64_t jobs) const;
  // "3 of 4 runs are finished; the rest takes about 2 min 5 s, 2 at a time".
  std::string left_text(std::int64_t jobs) const;

  // Reads the state of existing runs, estimates the memory of the others, and writes nothing. A run that cannot be read
  // is reported as failed. A run that does not fit in memory is skipped and fails. Throws UsageError for a run that
  // cannot be made, and Error when a folder holds another run.
  void take_stock();
  // Estimated seconds for the remaining training, `jobs` runs at a time. The arithmetic of the missing steps is divided
  // by the rate of finished runs of the same task, or else of any task. Nothing without a finished run.
  std::optional<double> seconds_left(std::int64_t jobs) const;
  // How many runs to train at a time. If `wanted` is 0: on a CPU one per core, as far as they fit in memory together,
  // which is faster than one run with all cores; on a GPU one. At least 1, and at most the number of open runs.
  std::int64_t jobs(std::int64_t wanted) const;
  // From now on records only failures in sweep.json. For many plans that share a folder.
  void work_beside_others() { beside_others_ = true; }
  // The memory that the largest open run needs.
  double bytes_of_run() const { return bytes_of_run_; }
  // Trains all open runs until every run is finished, by this plan or others, or a signal arrives.
  void execute(std::int64_t jobs);
  // Makes the folder, and lists the runs in its sweep.json.
  void write_list();
  // The summary of execute: "4 runs trained in 12 min, 2 at a time with 1 thread each".
  std::string work_text() const;

  // The outcome of a command that executed the plan: "3 of 4 runs finished, 1 diverged", the exit code, states as JSON.
  std::string states_text() const;
  int code() const;
  JsonValue states_json() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Child {
    std::size_t index;  // of its run
    Clock::time_point begin;
    bool lost = false;  // its claim was lost, so the process was stopped
  };

  void say(const std::string& text) const;
  // Sets the state of an existing run, and returns whether it is finished. Throws Error when it is another run.
  bool look_at(PlannedRun& run) const;
  // Whether the process of a run failed because another one started the run first. Sets the run's state in that case.
  bool left_to_others(PlannedRun& run);
  // Checks the run again when no other run is waiting to start.
  void wait_for_others(PlannedRun& run, const std::string& who);
  // Records the state of the run.
  void note(const PlannedRun& run) const;
  void write_state() const;
  // Starts runs until `jobs_` of them are running.
  void fill();
  void start(std::size_t index);
  void start_claimed(std::size_t index);
  // Stops the runs whose claims were lost.
  void renew_claims();
  void finish(const EndedProcess& ended, bool stopping);

  std::string folder_;
  std::vector<PlannedRun> runs_;
  const CommonOptions& common_;
  CommonOptions child_;      // of every run
  double bytes_of_run_ = 0;  // of the largest run
  RunClaims claims_;
  bool beside_others_ = false;
  std::int64_t jobs_ = 1, trained_ = 0;
  double seconds_ = 0;    // spent in execute()
  std::size_t next_ = 0;  // the first run that has not been looked at
  std::map<pid_t, Child> children_;
  std::deque<std::size_t> in_use_;  // runs that other processes train
  std::set<std::size_t> told_;      // those already reported
};

}  // namespace tally
