// Formats a report as a table, as JSON and as a chart.
#include <algorithm>
#include <map>
#include <optional>

#include "core/error.hpp"
#include "tasks/evaluation/error_rates.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/print/table.hpp"
#include "tasks/results/report.hpp"

namespace tally {

bool counts_sequences(const ReportTask& task, ErrorKind kind) {
  return kind == ErrorKind::sequence || (kind == ErrorKind::by_task && task.scores_sequences);
}

std::string generated_title(const std::string& split) { return split + ", generated"; }

namespace {

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

// "24.65 (0.31)": mean and standard deviation of e^x.
std::string mean_exponential_text(const std::vector<double>& logarithms) {
  const ExponentialMean mean = mean_of_exponentials(logarithms);
  if (mean.value.n == 0) return "-";
  return mean.mean_text() + (mean.value.n > 1 ? concat(" (", mean.deviation_text(3), ")") : "");
}

// "24.65 (0.31)": mean and standard deviation in four digits.
std::string mean_text(const std::vector<double>& values) {
  const MeanDeviation mean = mean_deviation(values);
  if (mean.n == 0) return "-";
  return short_number(mean.mean) + (mean.n > 1 ? concat(" (", short_number(mean.deviation, 3), ")") : "");
}

// The key of the results' breakdown, "length"; empty without a breakdown.
std::string breakdown_of(const std::vector<Evaluation>& results) {
  const bool all = !results.empty() && std::ranges::all_of(results, [](const Evaluation& e) { return !e.by.empty(); });
  return all ? results.front().breakdown : "";
}

// "4.9% (4.4)": mean and standard deviation over seeds, of means over keys.
std::string mean_over_keys_text(const std::vector<Evaluation>& results, bool sequences) {
  ErrorRates errors;
  for (const Evaluation& e : results) {
    errors.rates.push_back(sequences ? e.mean_sequence_error() : e.mean_token_error());
  }
  return errors.mean_text();
}

// The first cells of a group's row: its encoding and the settings in which groups differ.
std::vector<std::string> begin_of_row(const ReportTask& task, const ReportGroup& group) {
  std::vector<std::string> cells{group.encoding()};
  for (const std::string& name : task.settings) {
    const auto setting = group.settings.find(name);
    cells.push_back(setting == group.settings.end() ? "" : setting->second);
  }
  return cells;
}

// Perplexities over seeds with their token counts. Empty for tasks without text, and before any evaluation.
std::string text_table(const ReportTask& task, std::vector<std::string> head) {
  head.insert(head.end(), {"split", "perplexity", "loss +-", "bits per byte", "word perplexity", "context", "stride",
                           "tokens", "bytes", "words", "documents", "tokens' checksum", "tokenizer", "runs"});
  TableRows rows{head};
  bool any = false;
  for (const ReportGroup& group : task.groups) {
    const std::size_t before = rows.size();
    for (const std::string& split : task.splits) {
      const std::vector<Evaluation> results = group.results(split);
      if (results.empty() || !results.front().text) continue;
      std::vector<double> losses, bits, of_words, errors;
      for (const Evaluation& e : results) {
        if (!e.text) continue;
        losses.push_back(e.loss);
        if (e.text->bytes > 0) bits.push_back(e.bits_per_byte());
        if (e.text->words > 0) of_words.push_back(e.nats_per_word());
        if (const std::optional<double> error = e.loss_error()) errors.push_back(*error);
      }
      rows.push_back(begin_of_row(task, group));
      const TextCounts& text = *results.front().text;
      rows.back().insert(
          rows.back().end(),
          {split, mean_exponential_text(losses), errors.empty() ? "-" : short_number(mean_deviation(errors).mean, 2),
           mean_text(bits), mean_exponential_text(of_words), to_text(text.context), to_text(text.stride),
           with_commas(text.tokens), with_commas(text.bytes), with_commas(text.words), with_commas(text.documents),
           text.token_checksum, text.tokenizer_checksum, runs_cell(group)});
      any = true;
    }
    if (rows.size() == before) {  // none of its runs has been evaluated
      rows.push_back(begin_of_row(task, group));
      rows.back().resize(head.size() - 1, "-");
      rows.back().push_back(runs_cell(group));
    }
  }
  return any ? concat(
                   task.task->name,
                   ", perplexity of a token at the end: mean over seeds (standard deviation); +-: the standard error "
                   "of the loss, in nats a token, mean over runs\n\n",
                   markdown_table(rows), "\n")
             : "";
}

std::string task_text(const ReportTask& task, bool sequences) {
  std::vector<std::string> head{"encoding"};
  head.insert(head.end(), task.settings.begin(), task.settings.end());
  // For a text, the rate of wrong tokens adds little to the perplexity.
  if (std::string text = text_table(task, head); !text.empty()) return text;
  TableRows means{head}, counts{head}, over_keys{head};
  std::string breakdown;
  bool any_untrained = false;
  over_keys.front().insert(over_keys.front().end(), task.splits.begin(), task.splits.end());
  means.front().insert(means.front().end(), task.splits.begin(), task.splits.end());
  for (const std::string& split : task.generated) means.front().push_back(generated_title(split));
  means.front().emplace_back("runs");
  counts.front().insert(counts.front().end(), {"split", "wrong tokens (95% interval)", "wrong sequences"});
  for (const ReportGroup& group : task.groups) {
    const std::vector<std::string> begin = begin_of_row(task, group);
    means.push_back(begin);
    const auto add = [&](const std::string& split, const std::string& title, const std::vector<Evaluation>& results) {
      const bool untrained = !results.empty() && group.untrained.contains(split);
      any_untrained |= untrained;
      means.back().push_back(concat(error_rates(results, sequences).mean_text(), untrained ? untrained_mark : ""));
      if (results.empty()) return;
      counts.push_back(begin);
      counts.back().insert(counts.back().end(), {title, error_rates(results, false).pooled_text(),
                                                 error_rates(results, true).pooled_text()});
    };
    over_keys.push_back(begin);
    for (const std::string& split : task.splits) {
      const std::vector<Evaluation> results = group.results(split);
      add(split, split, results);
      const std::string by = breakdown_of(results);
      if (!by.empty()) breakdown = by;
      over_keys.back().push_back(by.empty() ? "-" : mean_over_keys_text(results, sequences));
    }
    for (const std::string& split : task.generated) add(split, generated_title(split), group.generated(split));
    means.back().push_back(runs_cell(group));
  }
  std::string text = concat(task.task->name, ", wrong ", sequences ? "sequences" : "tokens",
                            " at the end: mean over seeds (standard deviation)\n\n", markdown_table(means), "\n");
  if (any_untrained) text += concat(untrained_mark, " ", untrained_note, "\n\n");
  if (!breakdown.empty()) {
    text += concat("The same, each ", breakdown, " with equal weight\n\n", markdown_table(over_keys), "\n");
  }
  if (counts.size() > 1) {
    text += concat("Counts of all seeds together; the intervals (Wilson) know nothing of differences between seeds\n\n",
                   markdown_table(counts), "\n");
  }
  return text;
}

// "Trained on: <machine> (3 runs)", one line per machine.
std::string machines_text(const std::vector<RunSummary>& runs) {
  std::map<std::string, std::int64_t> machines;
  for (const RunSummary& run : runs) {
    for (const Machine& machine : run.machines) ++machines[machine.text()];
    if (run.machines.empty() && !run.measurements.empty()) ++machines["not recorded"];
  }
  std::string text;
  for (const auto& [machine, count] : machines) {
    text += concat("Trained on: ", printable(machine), count == 1 ? " (1 run)\n" : concat(" (", count, " runs)\n"));
  }
  return text;
}

JsonValue group_json(const ReportTask& task, const ReportGroup& group) {
  JsonValue settings = JsonValue::object(), states = JsonValue::object(), splits = JsonValue::array();
  JsonValue generated = JsonValue::array(), runs = JsonValue::array();
  for (const auto& [name, value] : group.settings) settings.set(name, value);
  for (const RunState state : run_states) states.set(name_of(state), group.count(state));
  const auto add = [&](JsonValue& list, const std::string& split, const std::vector<Evaluation>& results) {
    if (results.empty()) return;
    JsonValue errors = JsonValue::object({{"split", split},
                                          {"token_error", error_rates(results, false).json()},
                                          {"sequence_error", error_rates(results, true).json()}});
    if (group.untrained.contains(split)) errors.set("untrained_rows", true);
    list.push(std::move(errors));
  };
  for (const std::string& split : task.splits) add(splits, split, group.results(split));
  for (const std::string& split : task.generated) add(generated, split, group.generated(split));
  for (const RunSummary* run : group.runs) {
    JsonValue machines = JsonValue::array();
    for (const Machine& machine : run->machines) machines.push(machine.to_json());
    runs.push(JsonValue::object({{"path", run->path},
                                 {"seed", run->config.run.seed},
                                 {"state", name_of(run->state)},
                                 {"machines", std::move(machines)}}));
  }
  JsonValue json = JsonValue::object({{"task", task.task->name},
                                      {"pe", group.encoding()},
                                      {"settings", std::move(settings)},
                                      {"states", std::move(states)},
                                      {"splits", std::move(splits)},
                                      {"runs", std::move(runs)}});
  if (!generated.elements().empty()) json.set("generated", std::move(generated));
  return json;
}

ChartSeries series_of(const ReportGroup& group, std::string_view split, bool sequences) {
  const bool any_finished = group.count(RunState::finished) > 0;
  std::map<std::int64_t, std::vector<Evaluation>> by_step;
  for (const RunSummary* run : group.runs) {
    if (any_finished && run->state != RunState::finished) continue;
    for (const Measurement& m : run->measurements) {
      if (m.evaluation.split == split) by_step[m.step].push_back(m.evaluation);
    }
  }
  ChartSeries series{group.label(), group.encoding(), {}};
  for (const auto& [step, evaluations] : by_step) {
    const std::vector<double> rates = error_rates(evaluations, sequences).rates;
    const auto [low, high] = std::minmax_element(rates.begin(), rates.end());
    series.points.push_back({static_cast<double>(step), mean_deviation(rates).mean, *low, *high});
  }
  return series;
}

}  // namespace

std::string report_text(const Report& report, ErrorKind kind) {
  std::string text;
  for (const ReportTask& task : report.tasks) text += task_text(task, counts_sequences(task, kind));
  text += machines_text(report.runs);
  for (const std::string& problem : report.problems) text += concat("\nnot read: ", printable(problem), "\n");
  return text;
}

JsonValue report_json(const Report& report) {
  JsonValue groups = JsonValue::array(), problems = JsonValue::array();
  for (const ReportTask& task : report.tasks) {
    for (const ReportGroup& group : task.groups) groups.push(group_json(task, group));
  }
  for (const std::string& problem : report.problems) problems.push(problem);
  return JsonValue::object({{"groups", std::move(groups)}, {"problems", std::move(problems)}});
}

Chart report_chart(const Report& report, ErrorKind kind) {
  Chart chart;
  bool any_tokens = false, any_sequences = false;
  std::size_t most_seeds = 0;
  for (const ReportTask& task : report.tasks) {
    const bool sequences = counts_sequences(task, kind);
    (sequences ? any_sequences : any_tokens) = true;
    for (const std::string& split : task.splits) {
      ChartPanel panel{report.tasks.size() > 1 ? concat(task.task->name, " ", split) : split, {}};
      for (const ReportGroup& group : task.groups) panel.series.push_back(series_of(group, split, sequences));
      chart.panels.push_back(std::move(panel));
    }
    for (const ReportGroup& group : task.groups) most_seeds = std::max(most_seeds, group.runs.size());
    chart.title += concat(chart.title.empty() ? "" : ", ", task.task->name);
  }
  chart.title += ": error while training";
  if (most_seeds > 1) chart.title += ", mean over seeds (band: lowest to highest)";
  chart.x_label = "training step";
  chart.y_label = any_tokens && any_sequences ? "wrong" : any_sequences ? "wrong sequences" : "wrong tokens";
  return chart;
}

}  // namespace tally
