// A report as a table, as JSON and as a chart.
#include <algorithm>
#include <map>

#include "core/error.hpp"
#include "tasks/printable.hpp"
#include "tasks/report.hpp"
#include "tasks/statistics.hpp"
#include "tasks/table.hpp"

namespace tally {
namespace {

// Sums over seeds.
Evaluation pooled(const std::vector<Evaluation>& evaluations) {
  Evaluation sum;
  for (const Evaluation& e : evaluations) {
    sum.wrong += e.wrong;
    sum.scored += e.scored;
    sum.wrong_sequences += e.wrong_sequences;
    sum.sequences += e.sequences;
  }
  return sum;
}

MeanDeviation error_over_seeds(const std::vector<Evaluation>& evaluations, bool by_sequence) {
  std::vector<double> errors;
  for (const Evaluation& e : evaluations) errors.push_back(by_sequence ? e.sequence_error() : e.token_error());
  return mean_deviation(errors);
}

// Whether sequences are what is counted for these groups of one task.
bool by_sequence(const std::vector<const ReportGroup*>& groups, ErrorKind kind) {
  return kind == ErrorKind::sequence || (kind == ErrorKind::by_task && groups.front()->task_scores_sequences);
}

std::vector<const TaskEntry*> tasks_of(const Report& report) {
  std::vector<const TaskEntry*> tasks;
  for (const ReportGroup& group : report.groups) {
    if (std::find(tasks.begin(), tasks.end(), &group.task()) == tasks.end()) tasks.push_back(&group.task());
  }
  return tasks;
}

std::vector<const ReportGroup*> groups_of(const Report& report, const TaskEntry* task) {
  std::vector<const ReportGroup*> groups;
  for (const ReportGroup& group : report.groups) {
    if (&group.task() == task) groups.push_back(&group);
  }
  return groups;
}

// Splits that were evaluated, in the order of the first run that has them.
std::vector<std::string> splits_of(const std::vector<const ReportGroup*>& groups) {
  std::vector<std::string> splits;
  const auto add = [&](const std::string& split) {
    if (std::find(splits.begin(), splits.end(), split) == splits.end()) splits.push_back(split);
  };
  for (const ReportGroup* group : groups) {
    for (const RunSummary* run : group->runs) {
      for (const Evaluation& e : run->results) add(e.split);
      for (const RunSummary::Measurement& m : run->measurements) add(m.evaluation.split);
    }
  }
  return splits;
}

std::vector<std::string> setting_names(const std::vector<const ReportGroup*>& groups) {
  std::vector<std::string> names;
  for (const ReportGroup* group : groups) {
    for (const auto& [name, value] : group->settings) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

// "4.9% (4.4)": mean and deviation; the mean alone for one seed, "-" for none.
std::string cell(const MeanDeviation& error) {
  if (error.n == 0) return "-";
  std::string deviation = percent_text(error.deviation);
  deviation.pop_back();
  return percent_text(error.mean) + (error.n > 1 ? concat(" (", deviation, ")") : "");
}

// "3", or "2 of 4, 1 diverged, 1 waiting".
std::string runs_cell(const ReportGroup& group) {
  const std::int64_t finished = group.count(RunState::finished);
  std::string text = to_text(finished);
  if (finished == static_cast<std::int64_t>(group.runs.size())) return text;
  text += concat(" of ", group.runs.size());
  for (const RunState state : run_states) {
    if (state == RunState::finished || group.count(state) == 0) continue;
    text += concat(", ", group.count(state), " ", name_of(state));
  }
  return text;
}

std::string pooled_cell(std::int64_t hits, std::int64_t n) {
  const Interval interval = wilson_interval(hits, n);
  std::string low = percent_text(interval.low);
  low.pop_back();
  return concat(with_commas(hits), " of ", with_commas(n), " (", low, "-", percent_text(interval.high), ")");
}

void begin_row(std::vector<std::string>& row, const ReportGroup& group, const std::vector<std::string>& names) {
  row.push_back(group.encoding());
  for (const std::string& name : names) {
    const auto setting = std::find_if(group.settings.begin(), group.settings.end(),
                                      [&](const auto& candidate) { return candidate.first == name; });
    row.push_back(setting == group.settings.end() ? "" : setting->second);
  }
}

std::string task_text(const TaskEntry& task, const std::vector<const ReportGroup*>& groups, bool sequences) {
  const std::vector<std::string> splits = splits_of(groups), names = setting_names(groups);
  TableRows means(1), counts(1);
  for (TableRows* rows : {&means, &counts}) {
    rows->front().emplace_back("encoding");
    rows->front().insert(rows->front().end(), names.begin(), names.end());
  }
  means.front().insert(means.front().end(), splits.begin(), splits.end());
  means.front().emplace_back("runs");
  counts.front().insert(counts.front().end(), {"split", "wrong tokens (95% interval)", "wrong sequences"});
  for (const ReportGroup* group : groups) {
    begin_row(means.emplace_back(), *group, names);
    for (const std::string& split : splits) {
      const std::vector<Evaluation> results = group->results(split);
      means.back().push_back(cell(error_over_seeds(results, sequences)));
      if (results.empty()) continue;
      const Evaluation sum = pooled(results);
      begin_row(counts.emplace_back(), *group, names);
      counts.back().push_back(split);
      counts.back().push_back(pooled_cell(sum.wrong, sum.scored));
      counts.back().push_back(pooled_cell(sum.wrong_sequences, sum.sequences));
    }
    means.back().push_back(runs_cell(*group));
  }
  std::string text = concat(task.name, ", wrong ", sequences ? "sequences" : "tokens",
                            " at the end: mean over seeds (standard deviation)\n\n", markdown_table(means));
  if (counts.size() > 1) {
    text +=
        concat("\nCounts of all seeds together; the intervals (Wilson) know nothing of differences between seeds\n\n",
               markdown_table(counts));
  }
  return text;
}

JsonValue error_json(const std::vector<Evaluation>& results, bool sequences) {
  const MeanDeviation error = error_over_seeds(results, sequences);
  const Evaluation sum = pooled(results);
  const std::int64_t hits = sequences ? sum.wrong_sequences : sum.wrong, n = sequences ? sum.sequences : sum.scored;
  const Interval interval = wilson_interval(hits, n);
  return JsonValue::object({{"mean", error.mean},
                            {"deviation", error.deviation},
                            {"n", error.n},
                            {"wrong", hits},
                            {"of", n},
                            {"low", interval.low},
                            {"high", interval.high}});
}

}  // namespace

std::string report_text(const Report& report, ErrorKind kind) {
  std::string text;
  for (const TaskEntry* task : tasks_of(report)) {
    if (!text.empty()) text += "\n";
    const auto groups = groups_of(report, task);
    text += task_text(*task, groups, by_sequence(groups, kind));
  }
  for (const std::string& problem : report.problems) text += concat("\nnot read: ", printable(problem), "\n");
  return text;
}

JsonValue report_json(const Report& report) {
  JsonValue groups = JsonValue::array();
  for (const ReportGroup& group : report.groups) {
    JsonValue settings = JsonValue::object(), states = JsonValue::object(), splits = JsonValue::array();
    JsonValue runs = JsonValue::array();
    for (const auto& [name, value] : group.settings) settings.set(name, value);
    for (const RunState state : run_states) states.set(name_of(state), group.count(state));
    for (const std::string& split : splits_of({&group})) {
      const std::vector<Evaluation> results = group.results(split);
      if (results.empty()) continue;
      splits.push(JsonValue::object({{"split", split},
                                     {"token_error", error_json(results, false)},
                                     {"sequence_error", error_json(results, true)}}));
    }
    for (const RunSummary* run : group.runs) {
      runs.push(
          JsonValue::object({{"path", run->path}, {"seed", run->config.run.seed}, {"state", name_of(run->state)}}));
    }
    groups.push(JsonValue::object({{"task", group.task().name},
                                   {"pe", group.encoding()},
                                   {"settings", std::move(settings)},
                                   {"states", std::move(states)},
                                   {"splits", std::move(splits)},
                                   {"runs", std::move(runs)}}));
  }
  JsonValue problems = JsonValue::array();
  for (const std::string& problem : report.problems) problems.push(problem);
  return JsonValue::object({{"groups", std::move(groups)}, {"problems", std::move(problems)}});
}

namespace {

ChartSeries series_of(const ReportGroup& group, std::string_view split, bool sequences) {
  const bool any_finished = group.count(RunState::finished) > 0;
  std::map<std::int64_t, std::vector<double>> errors;  // by step
  for (const RunSummary* run : group.runs) {
    if (any_finished && run->state != RunState::finished) continue;
    for (const RunSummary::Measurement& m : run->measurements) {
      if (m.evaluation.split != split) continue;
      errors[m.step].push_back(sequences ? m.evaluation.sequence_error() : m.evaluation.token_error());
    }
  }
  ChartSeries series{group.label(), {}};
  for (const auto& [step, values] : errors) {
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    series.points.push_back({static_cast<double>(step), mean_deviation(values).mean, *low, *high});
  }
  return series;
}

}  // namespace

Chart report_chart(const Report& report, ErrorKind kind) {
  const std::vector<const TaskEntry*> tasks = tasks_of(report);
  Chart chart;
  bool any_tokens = false, any_sequences = false;
  std::size_t most_seeds = 0;
  for (const TaskEntry* task : tasks) {
    const auto groups = groups_of(report, task);
    const bool sequences = by_sequence(groups, kind);
    (sequences ? any_sequences : any_tokens) = true;
    for (const ReportGroup* group : groups) most_seeds = std::max(most_seeds, group->runs.size());
    for (const std::string& split : splits_of(groups)) {
      ChartPanel panel{tasks.size() > 1 ? concat(task->name, " ", split) : split, {}};
      for (const ReportGroup* group : groups) panel.series.push_back(series_of(*group, split, sequences));
      chart.panels.push_back(std::move(panel));
    }
    chart.title += concat(chart.title.empty() ? "" : ", ", task->name);
  }
  chart.title += ": error while training";
  if (most_seeds > 1) chart.title += ", mean over seeds (band: lowest to highest)";
  chart.x_label = "training step";
  chart.y_label = any_tokens && any_sequences ? "wrong" : any_sequences ? "wrong sequences" : "wrong tokens";
  return chart;
}

}  // namespace tally
