// The tables and the learning curves of a report.
#include <algorithm>
#include <map>
#include <optional>

#include "core/error.hpp"
#include "tasks/evaluation/error_rates.hpp"
#include "tasks/evaluation/evaluate.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/results/report.hpp"

namespace tally {

std::string generated_title(const std::string& split) { return split + ", generated"; }

namespace {

// "3", or "2 of 4, 1 diverged, 1 waiting". In JSON: the runs in each state.
ResultCell runs_cell(const ReportGroup& group) {
  const std::int64_t finished = group.count(RunState::finished);
  const bool all_finished = finished == static_cast<std::int64_t>(group.runs.size());
  std::string text = formatted("{}{}", finished, all_finished ? "" : formatted(" of {}", group.runs.size()));
  JsonValue states = JsonValue::object();
  for (const RunState state : run_states) {
    const std::int64_t count = group.count(state);
    states.set(name_of(state), count);
    if (state != RunState::finished && count > 0) text += formatted(", {} {}", count, name_of(state));
  }
  return {std::move(text), std::move(states)};
}

// The key of the results' breakdown, "length"; empty without a breakdown.
std::string breakdown_of(const std::vector<Evaluation>& results) {
  const bool all = !results.empty() && std::ranges::all_of(results, [](const Evaluation& e) { return !e.by.empty(); });
  return all ? results.front().breakdown : "";
}

// The first columns of all tables of a task: the encoding and the settings in which groups differ.
std::vector<ResultColumn> first_columns(const ReportTask& task) {
  std::vector<ResultColumn> columns{{"encoding"}};
  for (const std::string& name : task.settings) columns.push_back({name});
  return columns;
}

std::vector<ResultCell> first_cells(const ReportTask& task, const ReportGroup& group) {
  std::vector<ResultCell> cells{group.encoding()};
  for (const std::string& name : task.settings) {
    const auto setting = group.settings.find(name);
    cells.emplace_back(setting == group.settings.end() ? "" : setting->second);
  }
  return cells;
}

// Perplexities over seeds with their token counts.
ResultTable text_table(const ReportTask& task) {
  ResultTable table{formatted("{}, perplexity of a token at the end: mean over seeds (standard deviation); +-: the "
                              "standard error of the loss, in nats a token, mean over runs",
                              task.task->name),
                    first_columns(task)};
  for (const char* title : {"split", "perplexity", "loss +-", "bits per byte", "word perplexity", "context", "stride",
                            "tokens", "bytes", "words", "documents", "tokens' checksum", "tokenizer", "runs"}) {
    table.columns.push_back({title});
  }
  for (const ReportGroup& group : task.groups) {
    const std::size_t before = table.rows.size();
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
      const TextCounts& text = *results.front().text;
      const double error = mean_deviation(errors).mean;
      std::vector<ResultCell>& row = table.rows.emplace_back(first_cells(task, group));
      row.insert(row.end(),
                 {split, perplexity_cell(losses, 3),
                  errors.empty() ? ResultCell("-") : ResultCell(short_number(error, 2), error), number_cell(bits),
                  perplexity_cell(of_words, 3), ResultCell(to_text(text.context), text.context),
                  ResultCell(to_text(text.stride), text.stride), count_cell(text.tokens), count_cell(text.bytes),
                  count_cell(text.words), count_cell(text.documents), text.token_checksum, text.tokenizer_checksum,
                  runs_cell(group)});
    }
    if (table.rows.size() == before) {  // none of its runs has been evaluated
      std::vector<ResultCell>& row = table.rows.emplace_back(first_cells(task, group));
      row.resize(table.columns.size() - 1, "-");
      row.push_back(runs_cell(group));
    }
  }
  return table;
}

bool has_text(const ReportTask& task) {
  const auto of_text = [](const Evaluation& e) { return e.text.has_value(); };
  return std::ranges::any_of(task.groups, [&](const ReportGroup& group) {
    return std::ranges::any_of(group.runs,
                               [&](const RunSummary* run) { return std::ranges::any_of(run->results, of_text); });
  });
}

// Errors over seeds, the same with each key of a breakdown at equal weight, and pooled counts.
std::vector<ResultTable> error_tables(const ReportTask& task) {
  const bool sequences = task.scores_sequences;
  ResultTable means{formatted("{}, wrong {} at the end: mean over seeds (standard deviation)", task.task->name,
                              sequences ? "sequences" : "tokens"),
                    first_columns(task)};
  ResultTable over_keys{"", first_columns(task)};
  ResultTable counts{"Counts of all seeds together; the intervals (Wilson) know nothing of differences between seeds",
                     first_columns(task)};
  for (const std::string& split : task.splits) {
    means.columns.push_back({split});
    over_keys.columns.push_back({split});
  }
  for (const std::string& split : task.generated) means.columns.push_back({generated_title(split)});
  means.columns.push_back({"runs"});
  counts.columns.insert(counts.columns.end(),
                        {{"split"}, {"wrong tokens (95% interval)", "wrong tokens"}, {"wrong sequences"}});
  std::string breakdown;
  bool any_untrained = false;
  for (const ReportGroup& group : task.groups) {
    const std::vector<ResultCell> first = first_cells(task, group);
    std::vector<ResultCell>&of_means = means.rows.emplace_back(first), &of_keys = over_keys.rows.emplace_back(first);
    const auto add = [&](const std::string& split, const std::string& title, const std::vector<Evaluation>& results) {
      of_means.push_back(error_rates(results, sequences).mean_cell());
      if (results.empty()) return;
      if (group.untrained.contains(split)) {
        of_means.back().mark(untrained_mark, "untrained_rows");
        any_untrained = true;
      }
      std::vector<ResultCell>& row = counts.rows.emplace_back(first);
      row.insert(row.end(),
                 {title, error_rates(results, false).pooled_cell(), error_rates(results, true).pooled_cell()});
    };
    for (const std::string& split : task.splits) {
      const std::vector<Evaluation> results = group.results(split);
      add(split, split, results);
      std::vector<double> rates;
      if (const std::string by = breakdown_of(results); !by.empty()) {
        breakdown = by;
        for (const Evaluation& e : results) {
          rates.push_back(sequences ? e.mean_sequence_error() : e.mean_token_error());
        }
      }
      of_keys.push_back(percent_cell(rates));
    }
    for (const std::string& split : task.generated) add(split, generated_title(split), group.generated(split));
    of_means.push_back(runs_cell(group));
  }
  if (any_untrained) means.notes.push_back(formatted("{} {}", untrained_mark, untrained_note));
  over_keys.title = formatted("The same, each {} with equal weight", breakdown);
  std::vector<ResultTable> tables{std::move(means)};
  if (!breakdown.empty()) tables.push_back(std::move(over_keys));
  if (!counts.rows.empty()) tables.push_back(std::move(counts));
  return tables;
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
    text += formatted("Trained on: {} ({})\n", printable(machine), plural(count, "run"));
  }
  return text;
}

JsonValue run_json(const RunSummary& run) {
  JsonValue machines = JsonValue::array();
  for (const Machine& machine : run.machines) machines.push(machine.to_json());
  return JsonValue::object({{"path", run.path},
                            {"task", run.config.task->name},
                            {"pe", run.config.label()},
                            {"seed", run.config.run.seed},
                            {"state", name_of(run.state)},
                            {"machines", std::move(machines)}});
}

// Error rates of the finished runs of an encoding on a task.
struct OverviewCell {
  std::vector<double> in, out;  // in distribution; the mean over the out-of-distribution splits
  bool untrained = false;       // one of these reaches rows beyond any training sequence
};

// The groups of a task with one preset.
struct OverviewColumn {
  const ReportTask* task;
  std::string preset;
  std::map<std::string, OverviewCell> cells = {};  // by label
};

bool out_of_distribution(const std::string& split) { return split.starts_with("ood-"); }

void add_run(OverviewCell& cell, bool sequences, const RunSummary& run) {
  if (run.state != RunState::finished) return;
  std::optional<double> in;
  std::vector<double> out;
  for (const Evaluation& e : run.results) {
    const double error = sequences ? e.sequence_error() : e.token_error();
    if (out_of_distribution(e.split)) {
      out.push_back(error);
    } else {
      in = error;  // the last one: the test split if there is also a validation split
    }
  }
  if (in) cell.in.push_back(*in);
  if (!out.empty()) cell.out.push_back(mean_deviation(out).mean);
}

}  // namespace

std::vector<ResultTable> overview_tables(const Report& report) {
  std::vector<OverviewColumn> columns;
  std::vector<std::string> labels;
  for (const ReportTask& task : report.tasks) {
    if (task.task->reads_files) continue;
    for (const ReportGroup& group : task.groups) {
      const RunConfig& config = group.runs.front()->config;
      auto column = std::ranges::find_if(
          columns, [&](const OverviewColumn& own) { return own.task == &task && own.preset == config.preset; });
      if (column == columns.end()) column = columns.insert(column, {&task, config.preset});
      const std::string label = group.label(settings_of_preset(config));
      if (std::ranges::count(labels, label) == 0) labels.push_back(label);
      OverviewCell& cell = column->cells[label];
      for (const RunSummary* run : group.runs) add_run(cell, task.scores_sequences, *run);
      cell.untrained |= std::ranges::any_of(group.untrained, out_of_distribution);
    }
  }
  if (columns.size() < 2) return {};
  ResultTable in{"Encodings and tasks, in distribution: wrong answers, mean (standard deviation, seeds)",
                 {{"encoding"}}};
  ResultTable out{"The same out of distribution: the mean over a task's other splits", {{"encoding"}}};
  std::vector<std::string> of_sequences;
  for (const OverviewColumn& column : columns) {
    const auto same_task = [&](const OverviewColumn& other) { return other.task == column.task; };
    const bool alone = std::ranges::count_if(columns, same_task) == 1 || column.preset.empty();
    // "mqar", or "group-word quick-a5" if the task occurs with several presets.
    const std::string title = formatted("{}{}", column.task->task->name, alone ? "" : " " + column.preset);
    if (column.task->scores_sequences) of_sequences.push_back(title);
    in.columns.push_back({title});
    out.columns.push_back({title});
  }
  bool any_untrained = false;
  for (const std::string& label : labels) {
    std::vector<ResultCell>&in_row = in.rows.emplace_back(1, label), &out_row = out.rows.emplace_back(1, label);
    for (OverviewColumn& column : columns) {
      const OverviewCell& cell = column.cells[label];
      in_row.push_back(percent_cell(cell.in, true));
      out_row.push_back(percent_cell(cell.out, true));
      if (cell.untrained) out_row.back().mark(untrained_mark, "untrained_rows");
      any_untrained |= cell.untrained;
    }
  }
  if (!of_sequences.empty()) in.title += formatted("; whole sequences of {}", joined(of_sequences));
  if (any_untrained) out.notes.push_back(formatted("{} {}", untrained_mark, untrained_note));
  return {std::move(in), std::move(out)};
}

std::vector<ResultTable> tables_of(const ReportTask& task) {
  // For a text, the rate of wrong tokens adds little to the perplexity.
  return has_text(task) ? std::vector<ResultTable>{text_table(task)} : error_tables(task);
}

std::vector<ResultTable> report_tables(const Report& report) {
  std::vector<ResultTable> all;
  for (const ReportTask& task : report.tasks) {
    for (ResultTable& table : tables_of(task)) all.push_back(std::move(table));
  }
  return all;
}

std::string report_text(const Report& report) {
  std::string text = text_of(report_tables(report)) + machines_text(report.runs);
  for (const std::string& problem : report.problems) text += formatted("\nnot read: {}\n", printable(problem));
  return text;
}

JsonValue report_json(const Report& report) {
  JsonValue runs = JsonValue::array(), problems = JsonValue::array();
  for (const RunSummary& run : report.runs) runs.push(run_json(run));
  for (const std::string& problem : report.problems) problems.push(problem);
  return JsonValue::object({{"overview", json_of(overview_tables(report))},
                            {"tables", json_of(report_tables(report))},
                            {"runs", std::move(runs)},
                            {"problems", std::move(problems)}});
}

namespace {

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

Chart report_chart(const Report& report) {
  Chart chart;
  bool any_tokens = false, any_sequences = false;
  std::size_t most_seeds = 0;
  for (const ReportTask& task : report.tasks) {
    const bool sequences = task.scores_sequences;
    (sequences ? any_sequences : any_tokens) = true;
    for (const std::string& split : task.splits) {
      ChartPanel panel{report.tasks.size() > 1 ? formatted("{} {}", task.task->name, split) : split, {}};
      for (const ReportGroup& group : task.groups) panel.series.push_back(series_of(group, split, sequences));
      chart.panels.push_back(std::move(panel));
    }
    for (const ReportGroup& group : task.groups) most_seeds = std::max(most_seeds, group.runs.size());
    chart.title += formatted("{}{}", chart.title.empty() ? "" : ", ", task.task->name);
  }
  if (report.tasks.size() > 2) chart.title = formatted("{} tasks", report.tasks.size());
  chart.title += ": error while training";
  if (most_seeds > 1) chart.title += ", mean over seeds (band: lowest to highest)";
  chart.x_label = "training step";
  chart.y_label = any_tokens && any_sequences ? "wrong" : any_sequences ? "wrong sequences" : "wrong tokens";
  return chart;
}

namespace {

void check_texts(const RunSummary& run) {
  check(run.state == RunState::finished, "paired", "'{}' is {}: it has no results yet", printable(run.path),
        name_of(run.state));
  check(std::ranges::any_of(run.results, [](const Evaluation& e) { return !e.blocks.nats.empty(); }), "paired",
        "'{}' has no losses of the parts of a text: it is no language model, or of an earlier version",
        printable(run.path));
}

// Whether the difference is not 0 by Student's t test over the parts.
bool differs(const LossDifference& difference, std::size_t parts) {
  if (difference.error == 0) return difference.mean != 0;
  return student_p(difference.mean / difference.error, static_cast<double>(parts - 1)) < test_level;
}

}  // namespace

ResultTable paired(const RunSummary& first, const RunSummary& second) {
  check_texts(first);
  check_texts(second);
  const auto name = [](const RunSummary& run) { return formatted("{} ({})", printable(run.path), run.config.label()); };
  ResultTable table{formatted("Nats per token at the end, and the difference on the same tokens with its standard "
                              "error over the parts of the text,\nwhich covers no difference between seeds. It differs "
                              "from 0 if Student's t test says so at the 5% level.\n\nA: {}\nB: {}",
                              name(first), name(second)),
                    {{"split"},
                     {"A", "a"},
                     {"B", "b"},
                     {"A - B", "difference"},
                     {"+-", "error"},
                     {"differs"},
                     {"tokens"},
                     {"parts"},
                     {"context"},
                     {"stride"}}};
  for (const Evaluation& a : first.results) {
    const auto b = std::ranges::find(second.results, a.split, &Evaluation::split);
    if (!a.text || b == second.results.end() || !b->text) continue;
    const auto same = [&](std::string_view what, const auto& ours, const auto& theirs) {
      check(ours == theirs, "paired", "{}: the {} is {} in '{}' and {} in '{}'", a.split, what, ours,
            printable(first.path), theirs, printable(second.path));
    };
    same("tokenizer's checksum", a.text->tokenizer_checksum, b->text->tokenizer_checksum);
    same("tokens' checksum", a.text->token_checksum, b->text->token_checksum);
    same("context", a.text->context, b->text->context);
    same("stride", a.text->stride, b->text->stride);
    const LossDifference difference = paired_difference(a.blocks, b->blocks);
    const bool differ = differs(difference, a.blocks.nats.size());
    const auto number = [](double value, int digits) { return ResultCell(short_number(value, digits), value); };
    table.rows.push_back({a.split, number(a.loss, 4), number(b->loss, 4), number(difference.mean, 4),
                          number(difference.error, 2), ResultCell(differ ? "yes" : "no", differ),
                          count_cell(a.text->tokens), count_cell(static_cast<std::int64_t>(a.blocks.nats.size())),
                          ResultCell(to_text(a.text->context), a.text->context),
                          ResultCell(to_text(a.text->stride), a.text->stride)});
  }
  check(!table.rows.empty(), "paired", "'{}' and '{}' were evaluated on no split in common", printable(first.path),
        printable(second.path));
  return table;
}

}  // namespace tally
