#include "tasks/commands/parts/trained_model.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/command_line/grid.hpp"
#include "tasks/commands/parts/other_task.hpp"

namespace tally {
namespace {

StoredCheckpoint choose_checkpoint(const RunFolder& folder, const std::string& which) {
  const std::vector<std::int64_t> steps = folder.checkpoint_steps();
  if (which == "newest") {
    StoredCheckpoint newest = folder.newest_checkpoint(
        [](const std::string& why) { complain(formatted("passed over a checkpoint: {}", why)); });
    check(newest.file.has_value(), "checkpoint", "'{}' has no checkpoint that can be read", folder.path());
    return newest;
  }
  std::int64_t step = 0;
  if (which == "best") {
    step = folder.read_results().integer("best_step");
  } else {
    const std::optional<std::int64_t> number = whole_number(which);
    if (!number) throw UsageError(formatted("[checkpoint] '{}' is neither newest, best nor a step", which));
    step = *number;
  }
  std::vector<std::string> kept;
  for (const std::int64_t other : steps) kept.push_back(std::to_string(other));
  check(std::find(steps.begin(), steps.end(), step) != steps.end(), "checkpoint",
        "'{}' keeps no checkpoint of step {}; it has {}", folder.path(), step, joined(kept, ", "));
  return folder.open_checkpoint(step);
}

// Throws UsageError naming the first option that changed although it must stay as trained.
void check_may_change(const RunConfig& trained, const RunConfig& changed) {
  const auto options_of = [](const RunConfig& config, std::size_t part) {
    return list_options(*config.encoding.parts[part].options);
  };
  for (std::size_t part = 0; part < trained.encoding.parts.size(); ++part) {
    const EncodingEntry& entry = *trained.encoding.parts[part].entry;
    const std::vector<OptionInfo> before = options_of(trained, part), after = options_of(changed, part);
    for (std::size_t n = 0; n < before.size(); ++n) {
      if (before[n].value == after[n].value || std::ranges::count(entry.after_training, before[n].name) > 0) continue;
      throw UsageError(formatted(
          "[set] {} was trained with {} = {}, which cannot be changed any more{}", entry.name, before[n].name,
          to_text(before[n].value),
          entry.after_training.empty()
              ? ""
              : formatted("; what can is {}", joined({entry.after_training.begin(), entry.after_training.end()}))));
    }
  }
}

RunConfig with_changes(const RunConfig& config, const std::vector<std::string>& changes) {
  RunConfig changed = config.clone();
  for (const GridDimension& change : parse_grid(changes)) {
    if (!change.key.starts_with("pe.") || change.values.size() != 1) {
      throw UsageError(formatted("[set] '{}': one value of an option of an encoding, pe.relative.far=cap", change.key));
    }
    as_usage([&] { changed.set(change.key, change.values.front()); });
  }
  as_usage([&] { changed.validate(); });
  check_may_change(config, changed);
  return changed;
}

// The run's own task or, if its text cannot be read, the task on `data`. The checkpoint checks the vocabulary.
std::unique_ptr<Task> make_task_on(const std::string& data, const RunFolder& folder) {
  try {
    return make_own_task(folder, folder.config());
  } catch (const Error&) {
    if (data.empty() || !has_option(folder.config(), "data")) throw;
    RunConfig other = folder.config().clone();
    for (const ChangedOption& change : other_text(other, data, "--data")) {
      other.set("task." + change.name, change.value);
    }
    return other.make_task();
  }
}

}  // namespace

TrainedModel load_trained(const std::string& run, const std::string& checkpoint,
                          const std::vector<std::string>& changes, const std::string& data) {
  RunFolder folder = RunFolder::open(run);
  RunConfig config = with_changes(folder.config(), changes);
  check(!folder.checkpoint_steps().empty(), "checkpoint", "'{}' has no checkpoint{}", folder.path(),
        folder.finished() ? " any more: its results were kept without it; move the folder away and train it again"
                          : " yet");
  std::unique_ptr<Task> task = make_task_on(data, folder);
  in_file(folder.config_path(), [&] { check_fits(estimate_loading(folder.config(), *task)); });
  const StoredCheckpoint chosen = choose_checkpoint(folder, checkpoint);
  std::unique_ptr<SequenceModel> model = config.make_model(*task);
  in_file(folder.checkpoint_path(chosen.step), [&] {
    check_same_model(chosen.record, folder.config(), *task);
    load_tensors(model->parameters(), chosen.tensors("model."));
  });
  return {std::move(folder), std::move(config), std::move(task), std::move(model), chosen.step};
}

}  // namespace tally
