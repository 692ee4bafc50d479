// A run's model with the weights of one of its checkpoints, for commands that use what was trained.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "nn/model.hpp"
#include "tasks/run_folder.hpp"

namespace tally {

struct TrainedModel {
  RunFolder folder;
  std::unique_ptr<Task> task;
  std::unique_ptr<SequenceModel> model;
  std::int64_t step = 0;
};

// `checkpoint`: "newest" (the newest whose checksums hold; those passed over are named on stderr), "best", or a step.
// Throws UsageError for another text, Error when the run has no such checkpoint, and DoesNotFit before anything of the
// model is there.
TrainedModel load_trained(const std::string& run, const std::string& checkpoint = "newest");

// Help of an option that becomes the argument `checkpoint`.
inline constexpr const char* checkpoint_help = "newest, best, or the step of a checkpoint";

}  // namespace tally
