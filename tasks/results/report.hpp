// What several runs say together: grouped by task, encoding and the settings in which they differ, over seeds; as a
// table, as JSON, as learning curves. Runs that diverged, failed or are not finished are counted, never left out
// silently.
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
#include "tasks/runs/config.hpp"
#include "tasks/runs/metrics.hpp"

namespace tally {

// waiting: a sweep has it before it, so there is no folder yet.
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
  std::vector<Evaluation> results;        // at the end; of a finished run
  std::vector<Evaluation> generated;      // of answers that were fed back, where the run had them
  std::vector<Measurement> measurements;  // on the way, the end included
  std::vector<Machine> machines;          // that it was started on, each once
  double seconds = 0;                     // of training; of a finished run
};
// Throws Error when config, metrics or results cannot be read.
RunSummary read_run(const std::string& path);

// Names of the settings of a run that have the values of its preset.
std::set<std::string> settings_of_preset(const RunConfig& config);

// Runs that differ in nothing but the seed.
struct ReportGroup {
  std::map<std::string, std::string> settings;  // only those in which groups of the task differ
  std::vector<const RunSummary*> runs;          // never empty
  std::set<std::string> untrained = {};         // splits that reach rows for positions beyond any training sequence
  std::set<std::string> unnamed = {};           // of the settings: what the label leaves out

  std::string encoding() const { return runs.front()->config.label(); }
  // "cope model.layers=2". Where groups differ in more than two settings, without those that are as in their preset.
  std::string label() const;
  std::int64_t count(RunState state) const;
  // Results of one split, of the finished runs.
  std::vector<Evaluation> results(std::string_view split) const;
  std::vector<Evaluation> generated(std::string_view split) const;
};

struct ReportTask {
  const TaskEntry* task = nullptr;
  bool scores_sequences = false;       // see Task::scores_sequences
  std::vector<std::string> splits;     // that were evaluated, in the order of the first run that has them
  std::vector<std::string> generated;  // splits of which answers were generated
  std::vector<std::string> settings;   // all names in those of the groups
  std::vector<ReportGroup> groups;
};

struct Report {
  std::vector<RunSummary> runs;
  std::vector<ReportTask> tasks;      // point into `runs`; in the order in which their first runs come, groups too
  std::vector<std::string> problems;  // runs that could not be read, and why
};

// Each path is a run, or a folder with runs in it at any depth: all of them, but for those that --force moved aside. Of
// a sweep also the runs that it has before it, and which of them failed. Throws Error when a path holds no run.
Report make_report(const std::vector<std::string>& paths);

// Which error a table or a chart shows; by_task: of sequences where the task says so.
enum class ErrorKind { by_task, token, sequence };
bool counts_sequences(const ReportTask& task, ErrorKind kind);

// Stands behind the error of a split that reaches rows for positions beyond any training sequence; what it says.
inline constexpr std::string_view untrained_mark = "\u2020";
inline constexpr std::string_view untrained_note =
    "longer than any training sequence: rows of the learned table that no training sequence reaches are as they "
    "started";

// "ood-dense, generated": of answers that were fed back, beside those of the same split that were not.
std::string generated_title(const std::string& split);

// Tables in Markdown, one for each task: mean (deviation) over seeds, marked where a split reaches rows that were not
// trained; the same with each key of a breakdown at equal weight; and pooled counts with 95% intervals. Then what the
// runs were trained with.
std::string report_text(const Report& report, ErrorKind kind = ErrorKind::by_task);
JsonValue report_json(const Report& report);
// Of runs of several tasks or presets: encodings and tasks in one table, errors in distribution, and one with the mean
// over each task's other splits ("ood-..."). Empty for one task with one preset. As JSON an array, a task each.
std::string overview_text(const Report& report, ErrorKind kind = ErrorKind::by_task);
JsonValue overview_json(const Report& report, ErrorKind kind = ErrorKind::by_task);
// Error against step: one panel for each split, one line for each group: the mean over its finished runs (over all if
// none is), in a band from the lowest to the highest.
Chart report_chart(const Report& report, ErrorKind kind = ErrorKind::by_task);
// The picture of a report, SVG: that chart, or, of tasks with more groups than lines can be told apart, final errors as
// dots, the best first, above small charts of each group beside the best one and the one without an encoding.
std::string report_picture(const Report& report, ErrorKind kind = ErrorKind::by_task);

// The file that a sweep keeps beside its runs: {"format": 1, "runs": [{"name": ..., "state": ..., "config": {...}}]}.
inline constexpr std::string_view sweep_file_name = "sweep.json";
// Throws Error when it cannot be read or has another format.
JsonValue read_sweep_file(const std::string& path);

}  // namespace tally
