// Evaluations of a trained run with another value of an option of its task, which 'tally reproduce' stores with the
// run.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tasks/evaluation/evaluate.hpp"

namespace tally {

// The key of an evaluation of one run.
struct VariedKey {
  std::int64_t step = 0;      // of its checkpoint
  std::string option, value;  // "task.p-ignore", "0.3"
  std::string split;
  std::string with = {};  // other changes: "task.after=1024 pe.relative.far=cap"
  bool operator==(const VariedKey&) const = default;
};

using TaskSettings = std::vector<std::pair<std::string, std::string>>;

// The settings of an evaluation of a trained run.
struct VariedQuestion {
  std::string option, value;  // "task.length", "256"
  std::string split;
  TaskSettings beside = {};               // other task options that change with it
  std::vector<std::string> changes = {};  // of the encoding: "pe.relative.far=cap"

  // The key of its stored result, for the checkpoint of this step.
  VariedKey key(std::int64_t step) const;
};

inline constexpr std::string_view varied_file_name = "varied.json";
// The stored evaluations of one run, a file in its folder: {"format": 1, "results": [{"option", "value", "with" and the
// members of an evaluation}]}.
class VariedFile {
 public:
  // Reads existing evaluations from the run's folder. Throws Error when the file cannot be read or has another format.
  explicit VariedFile(std::string folder);
  // The evaluation with the most sequences; null if there is none.
  const Evaluation* find(const VariedKey& key) const;
  // Writes the file atomically, including entries that other processes have added since. Throws Error as above.
  void add(const VariedKey& key, const Evaluation& evaluation);

 private:
  std::string folder_, path_;
  std::vector<std::pair<VariedKey, Evaluation>> entries_;

  void read();
};

// Compares contexts of a text on the same targets, as 'tally eval --lengths' does: the targets begin after the longest
// context, and all windows end at the same tokens. {{"task.after", "1024"}, {"task.stride", "128"}}
TaskSettings same_targets(const std::vector<std::int64_t>& lengths);

// VariedKey::with: "task.after=1024 pe.relative.far=cap".
std::string changes_text(const TaskSettings& beside, const std::vector<std::string>& changes);

}  // namespace tally
