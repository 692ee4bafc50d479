// What `tally train` and `tally resume` share: the options that watch a run, the refusal of what cannot work, the run.
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

// Makes sure, before anything is written, that task and model can be made and that the model takes the sequences of all
// splits (UsageError otherwise), and that they fit in memory (Error with the estimate). What it will need.
MemoryEstimate check_can_train(const RunConfig& config, OptimizerState state = OptimizerState::whole);

// The folder of a run that ranks train together: the first one opens it by open(), the others beside it.
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

// Throws UsageError for a run that the ranks cannot share: there is nothing for one of them to do.
void check_ranks(const RunConfig& config);

// Trains to the end and prints what is to be seen of it; the results of a run that ended. `profile`: file for a Chrome
// trace; empty for none.
Result run_training(RunFolder folder, const CommonOptions& common, const std::string& profile,
                    OptimizerState state = OptimizerState::whole);
inline constexpr const char* split_optimiser_help =
    "of several processes each keeps its share of the optimiser's state alone (ZeRO-1); the same bits";

}  // namespace tally
