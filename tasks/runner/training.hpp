// What `tally train` and `tally resume` share: the options that watch a run, the refusal of what cannot work, the run.
#pragma once

#include <memory>
#include <string>

#include "tasks/run_folder.hpp"
#include "tasks/runner/command.hpp"

namespace tally {

// Options that look at a run and do not change it.
struct WatchOptions {
  std::string profile;     // Chrome trace file; empty for none
  bool debug_nan = false;  // name the operation whose result is not finite
};
std::shared_ptr<WatchOptions> declare_watch(CLI::App& app);

// Makes sure, before anything is written, that task and model can be made and that the model takes the sequences of all
// splits (UsageError otherwise), and that they fit in memory (Error with the estimate).
void check_can_train(const RunConfig& config);

// Trains to the end and prints what is to be seen of it; the exit code.
int run_training(RunFolder folder, const CommonOptions& common, const WatchOptions& watch);

}  // namespace tally
