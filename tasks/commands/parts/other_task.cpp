#include "tasks/commands/parts/other_task.hpp"

#include <algorithm>
#include <filesystem>

#include "tasks/command_line/command.hpp"
#include "tasks/data/task_paths.hpp"
#include "tasks/runs/model_record.hpp"
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

}  // namespace tally
