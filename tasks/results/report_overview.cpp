// A single table of encodings and tasks, for runs of several tasks or presets.
#include <algorithm>
#include <map>
#include <set>

#include "core/error.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/print/table.hpp"
#include "tasks/results/report.hpp"
#include "tasks/runs/model_record.hpp"

namespace tally {
namespace {

// Error rates of the finished runs of a row on a task.
struct Cell {
  std::vector<double> in, out;  // in distribution; the mean over the out-of-distribution splits
  bool untrained = false;       // one of these reaches rows beyond any training sequence
};

struct Column {
  const ReportTask* task;
  std::string preset;
  bool sequences = false;
  std::vector<const RunSummary*> runs = {};
  std::map<std::string, Cell> cells = {};  // by row
};

bool out_of_distribution(const std::string& split) { return split.starts_with("ood-"); }

double error_of(const Evaluation& e, bool sequences) { return sequences ? e.sequence_error() : e.token_error(); }

// "cope". The label is "cope model.layers=2" if the runs of one task and preset differ in more than encoding and seed,
// and this run differs from the preset.
std::vector<std::string> labels_of(const Column& column) {
  std::map<std::string, std::set<std::string>> values;
  for (const RunSummary* run : column.runs) {
    for (const auto& [name, value] : settings_of(run->config)) values[name].insert(value);
  }
  std::vector<std::string> labels;
  for (const RunSummary* run : column.runs) {
    labels.push_back(run->config.label());
    const std::set<std::string> usual = settings_of_preset(run->config);
    for (const auto& [name, value] : settings_of(run->config)) {
      if (values[name].size() > 1 && !usual.contains(name)) labels.back() += concat(" ", name, "=", value);
    }
  }
  return labels;
}

bool reaches_untrained(const ReportTask& task, const RunSummary& run) {
  for (const ReportGroup& group : task.groups) {
    if (std::ranges::count(group.runs, &run) == 0) continue;
    return std::ranges::any_of(group.untrained, out_of_distribution);
  }
  return false;
}

void add_run(Cell& cell, const Column& column, const RunSummary& run) {
  if (run.state != RunState::finished) return;
  const Evaluation* in = nullptr;
  double sum = 0;
  int count = 0;
  for (const Evaluation& e : run.results) {
    if (!out_of_distribution(e.split)) {
      in = &e;  // the last one: the test split if there is also a validation split
    } else {
      sum += error_of(e, column.sequences);
      ++count;
    }
  }
  if (in != nullptr) cell.in.push_back(error_of(*in, column.sequences));
  if (count > 0) cell.out.push_back(sum / count);
  cell.untrained |= count > 0 && reaches_untrained(*column.task, run);
}

struct Overview {
  std::vector<Column> columns;
  std::vector<std::string> rows;
};

Overview overview_of(const Report& report, ErrorKind kind) {
  Overview overview;
  for (const ReportTask& task : report.tasks) {
    if (task.task->reads_files) continue;
    const std::size_t first = overview.columns.size();
    for (const RunSummary& run : report.runs) {
      if (run.config.task != task.task) continue;
      const auto own =
          std::find_if(overview.columns.begin() + static_cast<std::ptrdiff_t>(first), overview.columns.end(),
                       [&](const Column& column) { return column.preset == run.config.preset; });
      if (own != overview.columns.end()) {
        own->runs.push_back(&run);
      } else {
        overview.columns.push_back({&task, run.config.preset, counts_sequences(task, kind), {&run}});
      }
    }
  }
  for (Column& column : overview.columns) {
    const std::vector<std::string> labels = labels_of(column);
    for (std::size_t r = 0; r < labels.size(); ++r) {
      if (std::ranges::count(overview.rows, labels[r]) == 0) overview.rows.push_back(labels[r]);
      add_run(column.cells[labels[r]], column, *column.runs[r]);
    }
  }
  return overview;
}

// "mqar", or "group-word quick-a5" if the task occurs with several presets.
std::string title_of(const Overview& overview, const Column& column) {
  const auto same_task = [&](const Column& other) { return other.task == column.task; };
  const bool alone = std::ranges::count_if(overview.columns, same_task) == 1;
  return concat(column.task->task->name, alone || column.preset.empty() ? "" : " " + column.preset);
}

// "4.9% (4.4, 3)"
std::string cell_text(const std::vector<double>& rates) {
  const MeanDeviation mean = mean_deviation(rates);
  if (mean.n == 0) return "-";
  return concat(percent_text(mean.mean), " (", mean.n > 1 ? percent_number(mean.deviation) + ", " : "", mean.n, ")");
}

JsonValue rates_json(const std::vector<double>& rates) {
  const MeanDeviation mean = mean_deviation(rates);
  return JsonValue::object({{"mean", mean.mean}, {"deviation", mean.deviation}, {"n", mean.n}});
}

}  // namespace

std::string overview_text(const Report& report, ErrorKind kind) {
  const Overview overview = overview_of(report, kind);
  if (overview.columns.size() < 2) return "";
  TableRows in{{"encoding"}}, out{{"encoding"}};
  std::string sequences;
  for (const Column& column : overview.columns) {
    in.front().push_back(title_of(overview, column));
    out.front().push_back(title_of(overview, column));
    if (column.sequences) sequences += (sequences.empty() ? "" : ", ") + title_of(overview, column);
  }
  bool any_untrained = false;
  for (const std::string& row : overview.rows) {
    in.push_back({row});
    out.push_back({row});
    for (const Column& column : overview.columns) {
      const auto found = column.cells.find(row);
      const Cell cell = found == column.cells.end() ? Cell{} : found->second;
      in.back().push_back(cell_text(cell.in));
      out.back().push_back(cell_text(cell.out) + std::string(cell.untrained ? untrained_mark : ""));
      any_untrained |= cell.untrained;
    }
  }
  std::string text =
      concat("Encodings and tasks, in distribution: wrong answers, mean (standard deviation, seeds)",
             sequences.empty() ? "" : "; whole sequences of " + sequences, "\n\n", markdown_table(in),
             "\nThe same out of distribution: the mean over a task's other splits\n\n", markdown_table(out), "\n");
  if (any_untrained) text += concat(untrained_mark, " ", untrained_note, "\n\n");
  return text;
}

JsonValue overview_json(const Report& report, ErrorKind kind) {
  const Overview overview = overview_of(report, kind);
  JsonValue columns = JsonValue::array();
  for (const Column& column : overview.columns) {
    JsonValue rows = JsonValue::array();
    for (const std::string& row : overview.rows) {
      const auto found = column.cells.find(row);
      if (found == column.cells.end() || found->second.in.empty()) continue;
      JsonValue json = JsonValue::object({{"row", row}, {"in_distribution", rates_json(found->second.in)}});
      if (!found->second.out.empty()) json.set("out_of_distribution", rates_json(found->second.out));
      if (found->second.untrained) json.set("untrained_rows", true);
      rows.push(std::move(json));
    }
    columns.push(JsonValue::object({{"title", title_of(overview, column)},
                                    {"task", column.task->task->name},
                                    {"preset", column.preset},
                                    {"counts", column.sequences ? "sequences" : "tokens"},
                                    {"rows", std::move(rows)}}));
  }
  return columns;
}

}  // namespace tally
