// Shared by `tally train` and `tally resume`: the options for watching a run, the checks, and the training.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "core/distributed/process_group.hpp"
#include "tasks/checks/memory.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/runs/run_folder.hpp"
#include "tasks/runs/train.hpp"

namespace tally {

// Help of the option that becomes the argument `profile`.
inline constexpr const char* profile_help = "file for a Chrome trace; a table by operation is printed at the end";

// Checks before any file is written that task and model can be made. The model must accept the sequences of all splits
// (UsageError otherwise) and fit in memory (Error with the estimate). Returns the estimate.
MemoryEstimate check_can_train(const RunConfig& config, OptimizerState state = OptimizerState::whole);

// Opens the folder of a run that several ranks train: the first rank calls open(), the others attach to it.
template <class F>
RunFolder open_together(const std::string& path, F&& open) {
  const ProcessGroup& ranks = ProcessGroup::world();
  if (ranks.alone()) return open();
  std::optional<RunFolder> folder;
  if (ranks.first()) folder.emplace(open());
  ranks.barrier();
  if (!folder) folder.emplace(RunFolder::open_beside(path));
  return std::move(*folder);
}

// Throws UsageError if a run has too little work for the number of ranks.
void check_ranks(const RunConfig& config);

// Trains to the end and prints the progress. Returns the results of a finished run. `profile`: file for a Chrome trace;
// empty for none.
Result run_training(RunFolder folder, const CommonOptions& common, const std::string& profile,
                    OptimizerState state = OptimizerState::whole);
inline constexpr const char* split_optimiser_help =
    "of several processes each keeps its share of the optimiser's state alone (ZeRO-1); the same bits";

}  // namespace tally
