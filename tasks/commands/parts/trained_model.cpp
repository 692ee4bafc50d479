#include "tasks/commands/parts/trained_model.hpp"

#include <algorithm>
#include <filesystem>

#include "core/error.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/command_line/config_options.hpp"
#include "tasks/data/task.hpp"
#include "tasks/runs/checkpoint.hpp"
#include "tasks/text/prepare/text_tokens.hpp"

namespace tally {

bool has_option(const RunConfig& config, std::string_view name) {
  return std::ranges::any_of(list_options(*config.task_options),
                             [&](const OptionInfo& info) { return info.name == name; });
}

std::unique_ptr<Task> make_own_task(const RunFolder& folder, const RunConfig& config) {
  try {
    return config.make_task();
  } catch (const Error& error) {
    const auto options = config.task_options->clone();
    const std::vector<std::string> names = path_options(*config.task, *options);
    const bool is_missing = std::ranges::any_of(list_options(*options), [&](const OptionInfo& option) {
      std::error_code unreadable;
      return std::ranges::count(names, option.name) > 0 && !to_text(option.value).empty() &&
             !std::filesystem::exists(to_text(option.value), unreadable);
    });
    throw Error(formatted(
        "{}: {}{}", folder.config_path(), error.what(),
        is_missing ? formatted("; where its data was moved, 'tally resume RUN --data PATH' says where to") : ""));
  }
}

std::unique_ptr<Task> make_other_task(const RunConfig& config, const Task& own,
                                      const std::vector<ChangedOption>& changes) {
  for (const ChangedOption& change : changes) {
    if (has_option(config, change.name)) continue;
    throw UsageError(
        formatted("[task] {} has no option '{}', so {} means nothing", config.task->name, change.name, change.word));
  }
  return as_usage([&] {
    RunConfig changed = config.clone();
    for (const ChangedOption& change : changes) changed.set("task." + change.name, change.value);
    std::unique_ptr<Task> task = changed.make_task();
    check(same_vocabulary(task->vocabulary_record(), own.vocabulary_record()), "task",
          "this data has {}, and the model was trained on {}; make the data with the tokenizer of the model",
          vocabulary_text(task->vocabulary_record()), vocabulary_text(own.vocabulary_record()));
    return task;
  });
}

std::vector<ChangedOption> other_text(const RunConfig& config, const std::string& data, const std::string& word) {
  std::vector<ChangedOption> changes{{"data", data, word}, {"validation", "", word}};
  if (!has_option(config, "data")) return changes;
  const auto own = [&](const char* name) { return settings_of(config).at(formatted("task.{}", name)); };
  if (is_prepared_text(data)) {
    for (const auto& [name, usual] : {std::pair{"tokenizer", ""}, {"end-token", ""}, {"token-type", "auto"}}) {
      changes.push_back({name, usual, word});
    }
  } else if (is_prepared_text(own("data"))) {
    changes.push_back({"tokenizer", own("data") + "/tokenizer.json", word});
  }
  return changes;
}

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

std::span<const Split> evaluation_splits(const Task& task) {
  check(task.splits().size() > 1, "split",
        "there are no sequences to evaluate on: where a run has a tokenizer without a text, --data names one");
  return std::span(task.splits()).subspan(1);
}

}  // namespace tally
