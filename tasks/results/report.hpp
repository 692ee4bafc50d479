// The combined results of several runs, grouped by task, encoding and the settings in which they differ, over seeds; as
// a table, as JSON, as learning curves. Runs that diverged, failed or are unfinished are always counted.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/print/svg.hpp"
#include "tasks/print/table.hpp"
#include "tasks/runs/config.hpp"
#include "tasks/runs/metrics.hpp"

namespace tally {

// waiting: planned by a sweep, without a folder yet.
enum class RunState { finished, diverged, failed, unfinished, waiting };
inline constexpr std::array run_states{RunState::finished, RunState::diverged, RunState::failed, RunState::unfinished,
                                       RunState::waiting};
std::string_view name_of(RunState state);  // "finished"
constexpr bool ended_badly(RunState state) { return state == RunState::failed || state == RunState::diverged; }
// Throws Error for any other text.
RunState run_state_from_text(std::string_view text);

struct RunSummary {
  std::string path;
  RunConfig config;
  RunState state = RunState::unfinished;
  std::vector<Evaluation> results;        // final results of a finished run
  std::vector<Evaluation> generated;      // with generated answers, if the run has them
  std::vector<Measurement> measurements;  // during training, including the end
  std::vector<Machine> machines;          // on which it was started, without repetition
  double seconds = 0;                     // of the training of a finished run
};
// Throws Error when config, metrics or results cannot be read.
RunSummary read_run(const std::string& path);

// Names of the run's settings that equal its preset.
std::set<std::string> settings_of_preset(const RunConfig& config);

// Runs that differ only in the seed.
struct ReportGroup {
  std::map<std::string, std::string> settings;  // only settings that differ between groups of the task
  std::vector<const RunSummary*> runs;          // never empty
  std::set<std::string> untrained = {};         // splits with positions beyond any training sequence
  std::set<std::string> unnamed = {};           // names of settings that the label omits

  std::string encoding() const { return runs.front()->config.label(); }
  // "cope model.layers=2". If groups differ in more than two settings, the label omits settings that equal the preset.
  std::string label() const { return label(unnamed); }
  // Without these settings.
  std::string label(const std::set<std::string>& omitted) const;
  std::int64_t count(RunState state) const;
  // Results of the finished runs on one split.
  std::vector<Evaluation> results(std::string_view split) const;
  std::vector<Evaluation> generated(std::string_view split) const;
};

struct ReportTask {
  const TaskEntry* task = nullptr;
  bool scores_sequences = false;       // see Task::scores_sequences
  std::vector<std::string> splits;     // evaluated splits, in the order of the first run that has them
  std::vector<std::string> generated;  // splits with generated answers
  std::vector<std::string> settings;   // all names in the groups' settings
  std::vector<ReportGroup> groups;
};

struct Report {
  std::vector<RunSummary> runs;
  std::vector<ReportTask> tasks;      // point into `runs`; tasks and groups are in the order of their first runs
  std::vector<std::string> problems;  // runs that could not be read, and why
};

// Whether a folder holds a model that `tally convert` reads. Its config.json has members that no run has.
bool is_foreign_model(const std::string& folder);

// Each path is a run, or a folder with runs at any depth. All of them are read, except runs that --force moved aside.
// For a sweep, the report includes its waiting and failed runs. Throws Error if a path holds no run.
Report make_report(const std::vector<std::string>& paths);

// The mark after the error of a split with positions beyond any training sequence, and its explanation.
inline constexpr std::string_view untrained_mark = "\u2020";
inline constexpr std::string_view untrained_note =
    "longer than any training sequence: rows of the learned table that no training sequence reaches are as they "
    "started";

// "ood-dense, generated": the title of generated answers, to distinguish them from the split itself.
std::string generated_title(const std::string& split);

// For runs of several tasks or presets: encodings and tasks in one table of errors in distribution. A second table has
// the mean over each task's other splits ("ood-..."). Empty for one task with one preset.
std::vector<ResultTable> overview_tables(const Report& report);
// For each task: the mean (standard deviation) over seeds, with a mark on splits that reach
// untrained rows; the same with each key of a breakdown at equal weight; and pooled counts with 95% intervals.
std::vector<ResultTable> report_tables(const Report& report);
std::vector<ResultTable> tables_of(const ReportTask& task);
// These tables, then the machines and the problems. In JSON: {"overview", "tables", "runs", "problems"}.
std::string report_text(const Report& report);
JsonValue report_json(const Report& report);
// Error against step: one panel for each split, one line for each group. A line is the mean over its finished runs
// (over all if none is finished), in a band from the lowest to the highest.
Chart report_chart(const Report& report);

// The file of a sweep in its folder: {"format": 1, "runs": [{"name": ..., "state": ..., "config": {...}}]}.
inline constexpr std::string_view sweep_file_name = "sweep.json";
// Throws Error when it cannot be read or has another format.
JsonValue read_sweep_file(const std::string& path);

// A report as one HTML page: tables, final errors as dots, curves with spread, and configuration and machine of every
// run.

// The data of the page. Each run has its name, seed, state, machines and configuration, and its error counts at the end
// and during training. If it has an inspect.html, its path relative to `folder`, the folder of the page, is included.
JsonValue report_page_json(const Report& report, const std::string& folder);

// The complete page (tasks/pages/report.html), which needs no network and no other file.
std::string report_page(const Report& report, const std::string& folder);

// Compares two language models on the same tokens.

// The difference of their losses, with its standard error over the same parts of the text, on every split that both
// runs evaluated at their end. Throws Error naming the run without such a result, and if text, tokenizer, context or
// stride differ.
ResultTable paired(const RunSummary& first, const RunSummary& second);

}  // namespace tally
