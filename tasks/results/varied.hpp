// The errors of trained models as one option of their task changes, as a table. The evaluations that 'tally reproduce'
// needs are stored with each run.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tasks/evaluation/evaluate.hpp"
#include "tasks/print/table.hpp"

namespace tally {

// The key of an evaluation of one run.
struct VariedKey {
  std::int64_t step = 0;      // of its checkpoint
  std::string option, value;  // "task.p-ignore", "0.3"
  std::string split;
  std::string with = {};  // other changes: "task.after=1024 pe.relative.far=cap"
  bool operator==(const VariedKey&) const = default;
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
std::vector<std::pair<std::string, std::string>> same_targets(const std::vector<std::int64_t>& lengths);

// VariedKey::with: "task.after=1024 pe.relative.far=cap".
std::string changes_text(const std::vector<std::pair<std::string, std::string>>& beside,
                         const std::vector<std::string>& changes);

// Runs that differ only in the seed, at one value.
struct VariedCell {
  std::vector<Evaluation> results;
  std::string refusal;  // why a run has no result: its encoding does not support this length
};

struct VariedLine {
  std::string label;  // "cope model.layers=2"
  std::int64_t runs = 0, finished = 0;
  std::vector<VariedCell> cells;  // one per value
};

struct VariedSetting {
  std::string task, option, split;
  bool generated = false, sequences = false;  // whether `sequences` are counted rather than tokens
  std::vector<std::string> values;
  std::string with = {};  // VariedKey::with
};

// Errors, or perplexities of a text, by value. The notes name the evaluations that failed.
ResultTable varied_table(const VariedSetting& setting, const std::vector<VariedLine>& lines);

}  // namespace tally
