// How errors of trained models change with one option of their task: what was found, kept beside each run; as a table,
// as JSON, as a chart.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/evaluation/evaluate.hpp"
#include "tasks/print/svg.hpp"
#include "tasks/results/report.hpp"

namespace tally {

// What is asked of one run.
struct VariedKey {
  std::int64_t step = 0;      // of its checkpoint
  std::string option, value;  // "task.p-ignore", "0.3"
  std::string split;
  std::int64_t count = 0;  // sequences
  bool generated = false;  // answers fed back (tasks/evaluation/generate.hpp)
  std::string with = {};   // what else was changed, "task.after=1024 pe.relative.far=cap"
  bool operator==(const VariedKey&) const = default;
};

inline constexpr std::string_view varied_file_name = "varied.json";
// What was found in one run, a file in its folder: {"format": 1, "results": [{"option", "value", "count", "with" and
// what an evaluation has}]}.
class VariedFile {
 public:
  // Reads what is there already in the run's folder. Throws Error when it cannot be read or has another format.
  explicit VariedFile(std::string folder);
  // Null for what was not found yet.
  const Evaluation* find(const VariedKey& key) const;
  // The same, of whatever count: that of the most sequences.
  const Evaluation* find_largest(VariedKey key) const;
  // Writes the file, atomically, with what others have found since. Throws Error as above.
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

// Contexts of a text are compared on the same targets, as 'tally eval --lengths' does: the longest is left out before
// the first of them, and all windows end at the same tokens. {{"task.after", "1024"}, {"task.stride", "128"}}
std::vector<std::pair<std::string, std::string>> same_targets(const std::vector<std::int64_t>& lengths);

// VariedKey::with: "task.after=1024 pe.relative.far=cap".
std::string changes_text(const std::vector<std::pair<std::string, std::string>>& beside,
                         const std::vector<std::string>& changes);

// Runs that differ in nothing but the seed, with one value.
struct VariedCell {
  std::vector<Evaluation> results;
  std::string refusal;  // why there is none of a run: the encoding does not take this length
};

struct VariedLine {
  std::string label;  // "cope model.layers=2"
  std::vector<std::string> runs;
  std::int64_t unfinished = 0;    // runs that are left out
  std::vector<VariedCell> cells;  // of each value
};

struct VariedTable {
  std::string task, option, split;
  bool generated = false, sequences = false;  // whether `sequences` are counted rather than tokens
  std::vector<std::string> values;
  std::string with = {};  // VariedKey::with
  std::vector<VariedLine> lines = {};

  // Of a text: then perplexities are compared, not errors.
  bool of_text() const;
};

// Markdown; then what could not be evaluated, and why.
std::string varied_text(const std::vector<VariedTable>& tables);
JsonValue varied_json(const std::vector<VariedTable>& tables);
// A panel for each table: mean over seeds, in a band from the lowest to the highest, against the option's value;
// against its number where the values are no numbers.
Chart varied_chart(const std::vector<VariedTable>& tables);

}  // namespace tally
