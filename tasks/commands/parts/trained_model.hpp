// A run's model with the weights of one of its checkpoints.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nn/model.hpp"
#include "tasks/data/task.hpp"
#include "tasks/runs/config.hpp"
#include "tasks/runs/run_folder.hpp"

namespace tally {

// A run's task with some of its options changed: other lengths, another folder of text.

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

struct TrainedModel {
  RunFolder folder;
  RunConfig config;  // of the folder, with the changes made after training
  std::unique_ptr<Task> task;
  std::unique_ptr<SequenceModel> model;
  std::int64_t step = 0;
};

// `checkpoint`: "newest" (the newest with valid checksums; skipped ones are named on stderr), "best", or a step. Throws
// UsageError for any other text, Error when the run has no such checkpoint, and DoesNotFit before it allocates the
// model. `changes`: "pe.relative.far=cap", encoding options that may change after training
// (EncodingEntry::after_training). Throws UsageError for any other option. `data`: another text, which replaces the
// text of the run if that cannot be read.
TrainedModel load_trained(const std::string& run, const std::string& checkpoint = "newest",
                          const std::vector<std::string>& changes = {}, const std::string& data = {});

// Help of an option that becomes the argument `changes`.
inline constexpr const char* changes_help =
    "key=value: an encoding's option for lengths beyond training, such as pe.relative.far=cap; may be repeated";

// Help of an option that becomes the argument `checkpoint`.
inline constexpr const char* checkpoint_help = "newest, best, or the step of a checkpoint";

// All splits except the training split. Throws Error if there are none.
std::span<const Split> evaluation_splits(const Task& task);

}  // namespace tally
