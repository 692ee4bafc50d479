// Sequences of a task: one a line as text or JSON, or their tokens as .npy.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tasks/command_line/command.hpp"
#include "tasks/command_line/config_options.hpp"

namespace tally {

struct TaskSequences {
  std::string preset, split = "train", out;
  std::int64_t count = 0, start = 0;
  // The configuration of the task that the command line names; null if it names none.
  std::shared_ptr<RunConfig> config = {};
  std::shared_ptr<ConfigOptions> options = {};

  // Declares --sequences, and the options that need it: of the split, the file and the task.
  static std::shared_ptr<TaskSequences> declare(CommandLine& line);
  // Prints or writes `count` sequences of the task.
  Result print(const std::string& task, bool as_json) const;
};

}  // namespace tally
