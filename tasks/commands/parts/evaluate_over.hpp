// tally eval --over: error rates of trained models as one option of their task changes, such as the sequence length.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tasks/command_line/command.hpp"

namespace tally {

struct OverSettings {
  std::vector<std::string> folders, over, changes;
  std::string split, error = "task";
  std::int64_t count = 0;
  bool generate = false;
};

// A table with a row per group of runs that differ only in the seed. Throws UsageError for an option that does not fit.
Result evaluate_over(const OverSettings& settings, const CommonOptions& common);

}  // namespace tally
