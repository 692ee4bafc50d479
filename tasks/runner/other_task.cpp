#include "tasks/runner/other_task.hpp"

#include <algorithm>

#include "tasks/model_record.hpp"
#include "tasks/runner/command.hpp"
#include "tasks/text/text_tokens.hpp"

namespace tally {

bool has_option(const RunConfig& config, std::string_view name) {
  return std::ranges::any_of(list_options(*config.task_options),
                             [&](const OptionInfo& info) { return info.name == name; });
}

std::unique_ptr<Task> make_other_task(const RunConfig& config, const Task& own,
                                      const std::vector<ChangedOption>& changes) {
  for (const ChangedOption& change : changes) {
    if (has_option(config, change.name)) continue;
    throw UsageError(
        concat("[task] ", config.task->name, " has no option '", change.name, "', so ", change.word, " means nothing"));
  }
  return as_usage([&] {
    RunConfig changed = config.clone();
    for (const ChangedOption& change : changes) changed.set("task." + change.name, change.value);
    std::unique_ptr<Task> task = changed.make_task();
    check(task->vocabulary_record() == own.vocabulary_record(), "task", "the symbols of this data (",
          task->vocabulary_record(), ") are not those that the model was trained on (", own.vocabulary_record(), ")");
    return task;
  });
}

std::vector<ChangedOption> other_text(const RunConfig& config, const std::string& data, const std::string& word) {
  std::vector<ChangedOption> changes{{"data", data, word}, {"validation", "", word}};
  if (!has_option(config, "data")) return changes;
  const auto own = [&](const char* name) { return settings_of(config).at(concat("task.", name)); };
  if (is_prepared_text(data)) {
    changes.push_back({"tokenizer", "", word});
  } else if (is_prepared_text(own("data"))) {
    changes.push_back({"tokenizer", own("data") + "/tokenizer.json", word});
  }
  return changes;
}

}  // namespace tally
