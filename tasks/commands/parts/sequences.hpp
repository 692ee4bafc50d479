// The sequences that `tally inspect` shows: from a split, from a file, or a text.
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
  std::string split, tokens, text;    // the name of a split (the first evaluation split if empty), a file, a text
  std::int64_t count = 0, start = 0;  // count 0: the default of the output

  // Declares --split, --count, --start, --tokens and --text.
  void declare(CommandLine& line);
  // The selected split; empty for a file and a text.
  std::string split_of(const Task& task) const;
  // Reads the sequences: `most` of them, or all of a split that has fewer, if the user set no count. It first calls
  // `check_fits` with their number and the longest length. Throws UsageError for sequences that the split does not
  // have, Error for a file without sequences of the vocabulary.
  std::vector<Example> read(const Task& task, std::int64_t most,
                            const std::function<void(std::int64_t sequences, std::int64_t length)>& check_fits) const;
};

}  // namespace tally
