// Sequences that a command looks at: of a split, or a user's own.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tasks/command_line/command.hpp"
#include "tasks/data/task.hpp"

namespace tally {

// All splits but the one for training. Throws Error where there are none.
std::span<const Split> evaluation_splits(const Task& task);

struct SequenceChoice {
  std::string split, tokens;  // the name of a split (the first evaluation split if empty), or a file
  std::int64_t count = 4, start = 0;

  // --split, --count, --start. `count_help`: what --count is.
  void declare_split(CommandLine& line, const std::string& count_help = "sequences");
  // These, and --tokens.
  void declare(CommandLine& line, const std::string& count_help = "sequences");
  // The split that is meant; empty with --tokens.
  std::string split_of(const Task& task) const;
  // Sets a count of 0 to as many as the split has from `start` on, `most` at most. Throws UsageError for no split.
  void count_at_most(std::int64_t most, const Task& task);
  // Reads them. First `check_fits` is told how many there will be and how long the longest is. Throws UsageError for
  // what the split does not have, Error for a file that holds no sequences of the vocabulary.
  std::vector<Example> read(const Task& task,
                            const std::function<void(std::int64_t sequences, std::int64_t length)>& check_fits) const;
};

}  // namespace tally
