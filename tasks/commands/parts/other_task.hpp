// A run's task with some of its options changed: other lengths, another folder of text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tasks/data/task.hpp"
#include "tasks/runs/config.hpp"
#include "tasks/runs/run_folder.hpp"

namespace tally {

struct ChangedOption {
  std::string name, value;  // of the task, "length", "64"
  std::string word;         // of the command line, "--lengths": what an error names
};

// The run's task, by this configuration of it. Throws Error naming the configuration's file, and what to do where a
// file that it names is not there.
std::unique_ptr<Task> make_own_task(const RunFolder& folder, const RunConfig& config);
// Throws UsageError where the task has no such option or refuses the value, and where the symbols would be others than
// those of `own`, the task that the model was trained on.
std::unique_ptr<Task> make_other_task(const RunConfig& config, const Task& own,
                                      const std::vector<ChangedOption>& changes);
bool has_option(const RunConfig& config, std::string_view name);
// Another text in place of the run's: a folder that `tally prepare` made, or token files of other programs, whose ids
// are taken for those of the run's tokenizer. `word`: of the command line.
std::vector<ChangedOption> other_text(const RunConfig& config, const std::string& data, const std::string& word);

}  // namespace tally
