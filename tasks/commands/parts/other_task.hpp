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
  std::string word;         // its spelling on the command line, "--lengths", for errors
};

// The run's task with this configuration. Throws Error that names the configuration's file and, if a data file is
// missing, the remedy.
std::unique_ptr<Task> make_own_task(const RunFolder& folder, const RunConfig& config);
// Throws UsageError if the task has no such option or refuses the value. The symbols must also be the same as in `own`,
// the task that the model was trained on.
std::unique_ptr<Task> make_other_task(const RunConfig& config, const Task& own,
                                      const std::vector<ChangedOption>& changes);
bool has_option(const RunConfig& config, std::string_view name);
// Another text instead of the run's own: a folder made by `tally prepare`, or token files of other programs. Their ids
// are interpreted with the run's tokenizer. `word`: the option on the command line.
std::vector<ChangedOption> other_text(const RunConfig& config, const std::string& data, const std::string& word);

}  // namespace tally
