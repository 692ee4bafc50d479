// The errors of trained models as one option of their task changes, as a table and as JSON. The evaluations that
// 'tally reproduce' needs are stored with each run.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/evaluation/evaluate.hpp"
#include "tasks/results/report.hpp"

namespace tally {

// The key of an evaluation of one run.
struct VariedKey {
  std::int64_t step = 0;      // of its checkpoint
  std::string option, value;  // "task.p-ignore", "0.3"
  std::string split;
  std::int64_t count = 0;  // sequences
  bool generated = false;  // answers fed back (tasks/evaluation/generate.hpp)
  std::string with = {};   // other changes: "task.after=1024 pe.relative.far=cap"
  bool operator==(const VariedKey&) const = default;
};

inline constexpr std::string_view varied_file_name = "varied.json";
// The stored evaluations of one run, a file in its folder: {"format": 1, "results": [{"option", "value", "count",
// "with" and the members of an evaluation}]}.
class VariedFile {
 public:
  // Reads existing evaluations from the run's folder. Throws Error when the file cannot be read or has another format.
  explicit VariedFile(std::string folder);
  // Null if there is no such evaluation.
  const Evaluation* find(const VariedKey& key) const;
  // The same for any count: the evaluation with the most sequences.
  const Evaluation* find_largest(VariedKey key) const;
  // Writes the file atomically, including entries that other processes have added since. Throws Error as above.
  void add(const VariedKey& key, const Evaluation& evaluation);

 private:
  struct Entry {
    VariedKey key;
    Evaluation evaluation;
  };
  std::string folder_, path_;
  std::vector<Entry> entries_;

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
  std::vector<std::string> runs;
  std::int64_t unfinished = 0;    // runs that are omitted
  std::vector<VariedCell> cells;  // one per value
};

struct VariedTable {
  std::string task, option, split;
  bool generated = false, sequences = false;  // whether `sequences` are counted rather than tokens
  std::vector<std::string> values;
  std::string with = {};  // VariedKey::with
  std::vector<VariedLine> lines = {};

  // Whether the task is text, so that perplexities are compared instead of errors.
  bool of_text() const;
};

// Markdown, followed by the evaluations that failed, with reasons.
std::string varied_text(const std::vector<VariedTable>& tables);
JsonValue varied_json(const std::vector<VariedTable>& tables);

}  // namespace tally
