// A published table or figure as a plan of runs, with their measurements next to the printed numbers. The tables are in
// tasks/reproductions.json.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/evaluation/error_rates.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/results/report.hpp"
#include "tasks/results/varied.hpp"
#include "tasks/runs/config.hpp"

namespace tally {

// paper: exactly the published setting. quick: reduced so that two cores finish a table in less than two hours, except
// for `encodings` and tables on text, but still able to show the published order. Both are presets of the task.
enum class Scale { quick, paper };
std::string_view name_of(Scale scale);

// A text that may depend on the scale.
struct Scaled {
  std::string quick, paper;
  Scaled(const char* both = "") : quick(both), paper(both) {}
  Scaled(const std::string& both) : quick(both), paper(both) {}
  Scaled(std::string quick_, std::string paper_) : quick(std::move(quick_)), paper(std::move(paper_)) {}
  const std::string& at(Scale scale) const { return scale == Scale::quick ? quick : paper; }
};

struct ScaledNumber {
  double quick = 0, paper = 0;
  double at(Scale scale) const { return scale == Scale::quick ? quick : paper; }
};

// A printed number, in percent or in the unit of its column. NaN: not stated.
struct Printed {
  double mean = std::numeric_limits<double>::quiet_NaN();
  double deviation = std::numeric_limits<double>::quiet_NaN();
  bool stated() const { return mean == mean; }
  bool has_spread() const { return deviation == deviation; }
  // As a mean over three seeds, as in the CoPE paper, times a factor. Without a printed deviation, it is exact.
  MeanDeviation over_seeds(double factor = 1) const {
    return {factor * mean, has_spread() ? factor * deviation : 0, 3};
  }
};

struct ReproductionRow {
  std::string label;
  Scaled encoding;
  Scaled settings = {};               // of its runs, in addition to the preset: "model.layers=2 model.heads=2"
  std::vector<Printed> printed = {};  // by column; may end early
  Scaled beyond = {};  // changes for evaluation at contexts other than the trained one: "pe.relative.far=cap"
};

// A prepared text that language models are trained on.
struct ReproductionText {
  Scaled preset;   // of the task `text`
  Scaled data;     // its folder
  Scaled made_by;  // a command, or an instruction
};

struct ReproductionColumn {
  Scaled title;
  std::string task;        // empty: a column with printed numbers only
  std::string split;       // on which the error is measured
  Scaled settings = {};    // of the runs in this column
  double share = 1;        // fraction of the training after which the error was measured
  bool generated = false;  // the error of generated answers
  std::string unit = {};   // of the printed numbers if they are not errors in percent: "perplexity"
  std::shared_ptr<const ReproductionText> text = {};  // if set, perplexities are measured, not errors
  ScaledNumber context = {};  // length of the evaluated windows, if given; all in a table score the same targets
  Scaled preset = {};         // of the task; empty: the text's preset, else the preset with the name of the scale
};

// A choice that the paper leaves open.
struct OpenChoice {
  Scaled what, chosen, why;
};

struct Reproduction {
  std::string name;
  std::string title;  // one line
  std::string source;
  std::vector<ReproductionColumn> columns;
  std::vector<ReproductionRow> rows;
  std::vector<OpenChoice> choices = {};
  bool curves = false;                    // the page shows learning curves
  std::vector<std::string> aliases = {};  // "table9": another table with the same printed numbers
  bool published = true;                  // if false, no paper trains it, and there is no scale `paper`
  std::string note = {};                  // about the comparison; may be empty
};

// Tables in JSON, in the order of the file:
//   {"texts": {"prose": {"preset": "...", "data": "...", "made-by": "..."}},
//    "choices": {"counting": [{"what": "...", "chosen": "...", "why": "..."}, "an earlier list"]},
//    "tables": {
//      "table3": {
//        "title": "...", "source": "...", "note": "...", "aliases": ["table9"], "published": false,
//        "curves": true,
//        "columns": [{"title": "...", "task": "counting", "split": "test"}],
//        "rows": [{"label": "...", "encoding": "cope", "settings": "...", "printed": [5.3, [0.4, 0.1], null]}],
//        "choices": ["counting", {"what": "...", "chosen": "...", "why": "..."}]
//      }}}
// Keys of columns and rows are the members of ReproductionColumn and ReproductionRow. Members with a default may be
// left out; a label is then the encoding. A Scaled member is one value, or {"quick": ..., "paper": ...}; settings may
// have only one of the two. printed has a mean, [mean, deviation] or null for each column. The row
// {"every-encoding": {"hard": "absolute+hard"}} gives each encoding a row, with replacements. Throws Error naming file,
// entry and key, also for tasks, presets, encodings, texts and lists of choices that do not exist. runs_of checks
// options and splits.
std::vector<Reproduction> read_reproductions(std::string_view json, const std::string& file);

// All tables of the program.
const std::vector<Reproduction>& reproduction_registry();
// By name or alias. Throws Error with the nearest known name.
const Reproduction& find_reproduction(std::string_view name);
// "figure2, figure5, table2"
std::string reproduction_names();
// The table with only these rows, by label, and only the columns of these tasks; the title names the tasks. An empty
// list selects all. Throws Error for a name that it does not have.
Reproduction part_of(const Reproduction& table, const std::vector<std::string>& rows,
                     const std::vector<std::string>& tasks);

// The options of a reproduction.
struct ReproductionSetting {
  Scale scale = Scale::quick;
  std::vector<std::int64_t> seeds{1, 2, 3};
  std::string changes;  // to every run: "steps=100 model.width=32". The result is then neither scale, and all output
                        // states this.
};

// A run of the plan. Tables that share a run use the same name.
struct ReproductionRun {
  std::string name;  // "flip-flop/cope-model.layers=1-seed2", from the folder of the scale
  RunConfig config;
};
// The preset of the task in a column of runs.
std::string preset_of(const ReproductionColumn& column, Scale scale);
// The evaluation of a cell at a context of its own, as in 'tally eval --over task.length'; nothing for other cells.
std::optional<VariedQuestion> context_of(const Reproduction& table, const ReproductionRow& row,
                                         const ReproductionColumn& column, Scale scale);
// The run of a cell; nothing in a column without runs.
std::optional<ReproductionRun> run_of(const Reproduction& table, const ReproductionRow& row,
                                      const ReproductionColumn& column, const ReproductionSetting& setting,
                                      std::int64_t seed);
// All runs without repetition, seed by seed. Throws Error for an invalid run, for a split that its task does not have
// (it does not open files to check), and for a scale that the table does not have.
std::vector<ReproductionRun> runs_of(const Reproduction& table, const ReproductionSetting& setting);

// The measurements of the runs in a folder.
struct Reproduced {
  struct Cell {
    std::vector<Evaluation> results{};  // of the finished runs
    std::optional<Printed> printed{};   // of the paper
    bool sequences = false;             // counts sequences, not tokens
    bool untrained = false;             // the split reaches rows beyond any training sequence
    bool of_text() const { return !results.empty() && results.front().text.has_value(); }
    std::vector<double> values() const;  // error rates; of a text, perplexities
    bool comparable() const;             // with the printed number: at least two seeds, since one has no spread
    bool differs() const;  // comparable, different by Welch's t test, and outside the interval of the counts
  };
  const Reproduction* table;
  ReproductionSetting setting;
  std::vector<std::vector<Cell>> cells = {};   // by row and column
  std::vector<std::string> paths = {};         // existing runs
  std::map<RunState, std::int64_t> runs = {};  // planned, by state
  double seconds = 0;                          // of training, together
  std::vector<std::string> problems = {};      // runs that could not be read
};
Reproduced reproduced(const Reproduction& table, const ReproductionSetting& setting, const std::string& folder);

// Markdown: measured mean (deviation) next to the printed number, with a mark if they differ, then the open choices.
std::string reproduced_text(const Reproduced& result);
// The presets of the runs: summary, settings, source and note of each.
std::string presets_text(const Reproduction& table, Scale scale);
JsonValue reproduced_json(const Reproduced& result);

}  // namespace tally
