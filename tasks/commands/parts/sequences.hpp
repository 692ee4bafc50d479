// The sequences that a command works on: from a split, or from the user's file.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tasks/command_line/command.hpp"
#include "tasks/data/task.hpp"

namespace tally {

// All splits except the training split. Throws Error if there are none.
std::span<const Split> evaluation_splits(const Task& task);

struct SequenceChoice {
  std::string split, tokens;  // the name of a split (the first evaluation split if empty), or a file
  std::int64_t count = 4, start = 0;

  // Declares --split, --count, --start. `count_help`: the unit of --count.
  void declare_split(CommandLine& line, const std::string& count_help = "sequences");
  // Declares the same options and --tokens.
  void declare(CommandLine& line, const std::string& count_help = "sequences");
  // The selected split; empty with --tokens.
  std::string split_of(const Task& task) const;
  // Replaces a count of 0 by the number of sequences in the split after `start`, at most `most`. Throws UsageError for
  // an unknown split.
  void count_at_most(std::int64_t most, const Task& task);
  // Reads the sequences. It first calls `check_fits` with their number and the longest length. Throws UsageError for
  // sequences that the split does not have, Error for a file without sequences of the vocabulary.
  std::vector<Example> read(const Task& task,
                            const std::function<void(std::int64_t sequences, std::int64_t length)>& check_fits) const;
};

}  // namespace tally
