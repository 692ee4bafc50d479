// A run's model with the weights of one of its checkpoints.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/model.hpp"
#include "tasks/runs/run_folder.hpp"

namespace tally {

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
    "key=value: an option of an encoding that decides what it does beyond the trained length, such as "
    "pe.relative.far=cap; may be given again";

// Help of an option that becomes the argument `checkpoint`.
inline constexpr const char* checkpoint_help = "newest, best, or the step of a checkpoint";

}  // namespace tally
