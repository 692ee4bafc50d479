#include "tasks/runner/trained_model.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "tasks/estimate.hpp"
#include "tasks/runner/command.hpp"
#include "tasks/runner/grid.hpp"

namespace tally {
namespace {

RunFolder::StoredCheckpoint choose_checkpoint(const RunFolder& folder, const std::string& which) {
  const std::vector<std::int64_t> steps = folder.checkpoint_steps();
  if (which == "newest") {
    RunFolder::StoredCheckpoint newest =
        folder.newest_checkpoint([](const std::string& why) { complain(concat("passed over a checkpoint: ", why)); });
    check(newest.file.has_value(), "checkpoint", "'", folder.path(), "' has no checkpoint that can be read");
    return newest;
  }
  std::int64_t step = 0;
  if (which == "best") {
    step = folder.read_results().integer("best_step");
  } else {
    const std::optional<std::int64_t> number = whole_number(which);
    if (!number) throw UsageError(concat("[checkpoint] '", which, "' is neither newest, best nor a step"));
    step = *number;
  }
  std::vector<std::string> kept;
  for (const std::int64_t other : steps) kept.push_back(std::to_string(other));
  check(std::find(steps.begin(), steps.end(), step) != steps.end(), "checkpoint", "'", folder.path(),
        "' keeps no checkpoint of step ", step, "; it has ", joined(kept, ", "));
  return folder.open_checkpoint(step);
}

}  // namespace

TrainedModel load_trained(const std::string& run, const std::string& checkpoint) {
  RunFolder folder = RunFolder::open(run);
  check(!folder.checkpoint_steps().empty(), "checkpoint", "'", folder.path(), "' has no checkpoint yet");
  std::unique_ptr<Task> task = in_file(folder.config_path(), [&] {
    std::unique_ptr<Task> made = folder.config().make_task();
    check_fits(estimate_loading(folder.config(), *made));
    return made;
  });
  const RunFolder::StoredCheckpoint chosen = choose_checkpoint(folder, checkpoint);
  std::unique_ptr<SequenceModel> model = folder.config().make_model(*task);
  in_file(folder.checkpoint_path(chosen.step), [&] {
    check_same_model(chosen.record, folder.config(), *task);
    load_tensors(model->parameters(), chosen.tensors("model."));
  });
  return {std::move(folder), std::move(task), std::move(model), chosen.step};
}

}  // namespace tally
