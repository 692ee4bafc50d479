#include "tasks/commands/parts/evaluate_over.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

#include "core/error.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/command_line/config_options.hpp"
#include "tasks/command_line/training.hpp"
#include "tasks/commands/parts/trained_model.hpp"
#include "tasks/evaluation/error_rates.hpp"
#include "tasks/evaluation/generate.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/results/varied.hpp"
#include "tasks/runs/checkpoint.hpp"
#include "tasks/runs/config.hpp"

namespace tally {

namespace {

// A run's task with the value of the question. Throws UsageError for an invalid value, and if the model does not know
// the symbols.
std::unique_ptr<Task> varied_task(const RunConfig& config, const VariedQuestion& question) {
  const auto change = [](const std::string& name, const std::string& value) {
    return ChangedOption{name.substr(std::string_view("task.").size()), value, "--over"};
  };
  std::vector<ChangedOption> changes{change(question.option, question.value)};
  for (const auto& [name, value] : question.beside) changes.push_back(change(name, value));
  return make_other_task(config, *config.make_task(), changes);
}

}  // namespace

std::optional<Evaluation> VariedRun::evaluate(const VariedQuestion& question, std::string& refusal, std::int64_t count,
                                              bool generate) {
  const std::string label = formatted("{}, {}={}", run_.path, question.option, question.value);
  try {
    const auto task = varied_task(run_.config, question);
    const Split& split = task->split(question.split);
    if (!trained_) trained_.emplace(load_trained(run_.path, "newest", question.changes));
    const RunConfig& config = trained_->config;
    trained_->model->check_length(split.length);
    const std::int64_t batch = generate ? config.run.eval_batch : sequences_at_once(split);
    check_fits(estimate_evaluation(config, *task, batch, split.length));
    const auto& evaluate_as = generate ? evaluate_generated : tally::evaluate;
    const Evaluation found =
        evaluate_as(*trained_->model, *task, split.name, count == 0 ? split.count : count, batch, &stop_, {});
    if (stop_.load()) return std::nullopt;
    say(common_, formatted("{}: {}", printable(label), evaluation_text(found, common_.json ? stderr : stdout)));
    return found;
  } catch (const Error& why) {
    complain(formatted("{}: {}", label, why.what()));
    refusal = printable(why.what());
    return std::nullopt;
  }
}

namespace {

// Options that change together with the context of a text, so that all contexts score the same targets; otherwise none.
TaskSettings beside(const RunConfig& config, const std::string& option, const std::vector<std::string>& values) {
  if (option != "task.length" || !has_option(config, "after") || !has_option(config, "stride")) return {};
  std::vector<std::int64_t> lengths;
  for (const std::string& value : values) {
    const std::optional<std::int64_t> length = whole_number(value);
    if (!length || *length < 1) throw UsageError(formatted("[eval] '{}' is no length", value));
    lengths.push_back(*length);
  }
  return same_targets(lengths);
}

// Whether a change, "pe.relative.far=cap", belongs to an encoding of the run.
bool concerns(const std::string& change, const RunConfig& config) {
  return std::ranges::any_of(config.encoding.parts, [&](const EncodingChoice::Part& part) {
    return change.starts_with(formatted("pe.{}.", part.entry->name));
  });
}

// Throws UsageError for a change that applies to none of the runs.
void check_changes(const std::vector<std::string>& changes, const std::vector<RunSummary>& runs) {
  for (const std::string& change : changes) {
    if (std::ranges::none_of(runs, [&](const RunSummary& run) { return concerns(change, run.config); })) {
      throw UsageError(formatted("[eval] --set {} belongs to the encoding of none of the runs", change));
    }
  }
}

// The full name of a task's option. If the task has none of this name, `hint` gets the nearest one.
std::string option_of(const RunConfig& config, const std::string& name, std::string& hint) {
  std::vector<std::string> names;
  for (const RunConfig::Field& field : config.fields()) {
    if (!field.name.starts_with("task.")) continue;
    if (name == field.name || name == field.alias) return field.name;
    names.push_back(field.name);
  }
  const std::string meant = meant_option(name, names);
  hint = meant.empty() ? "" : formatted("; did you mean '{}'?", meant);
  return "";
}

// The evaluations of one task's runs. All are validated before the first one is computed.
struct Plan {
  const ReportTask* report;
  VariedQuestion question;  // without a value
};

std::vector<Plan> plans_of(const Report& report, const OverSettings& settings, const GridDimension& over) {
  std::vector<Plan> plans;
  std::string without;
  for (const ReportTask& task : report.tasks) {
    const RunConfig& config = task.groups.front().runs.front()->config;
    std::string hint;
    const std::string option = option_of(config, over.key, hint);
    if (option.empty()) {
      without += formatted("[eval] the task {} has no option '{}'{}", config.task->name, over.key, hint);
      continue;
    }
    const std::unique_ptr<Task> made = config.make_task();
    const std::string split = settings.split.empty() ? evaluation_splits(*made).front().name : settings.split;
    plans.push_back({&task, {option, "", split, beside(config, option, over.values), settings.changes}});
    VariedQuestion question = plans.back().question;
    for (const std::string& value : over.values) {
      question.value = value;
      const auto varied = varied_task(config, question);
      const Split& of = as_usage([&]() -> const Split& { return varied->split(split); });
      if (of.count == 0 && settings.count == 0) {
        throw UsageError(formatted("[eval] the split '{}' is endless; say how many sequences with --count", split));
      }
      as_usage([&] { return varied->split_holding(split, 0, settings.count); });
    }
  }
  if (plans.empty()) throw UsageError(without);
  return plans;
}

// The table of a plan, of errors or of perplexities by value. Its notes name the evaluations that failed; `refused`
// becomes true if there are some.
ResultTable evaluated(const Plan& plan, const GridDimension& over, const OverSettings& settings,
                      const CommonOptions& common, const std::atomic<bool>& stop, bool& refused) {
  const bool sequences = plan.report->scores_sequences;
  ResultTable table{"", {{"encoding"}}};
  for (const std::string& value : over.values) table.columns.push_back({value});
  table.columns.push_back({"runs"});
  bool of_text = false;
  std::set<std::string> counts;
  std::vector<std::string> refusals;
  struct Cell {
    std::vector<Evaluation> results = {};
    std::string refusal = {};  // why a run has no result
  };
  for (const ReportGroup& group : plan.report->groups) {
    std::vector<Cell> cells(over.values.size());
    for (const RunSummary* run : group.runs) {
      if (run->state != RunState::finished) continue;
      VariedQuestion question = plan.question;
      std::erase_if(question.changes, [&](const std::string& change) { return !concerns(change, run->config); });
      VariedRun work(*run, common, stop);
      for (std::size_t n = 0; n < cells.size() && !stop.load(); ++n) {
        question.value = over.values[n];
        const auto found = work.evaluate(question, cells[n].refusal, settings.count, settings.generate);
        if (found) cells[n].results.push_back(*found);
      }
    }
    std::vector<ResultCell>& row = table.rows.emplace_back(1, group.label());
    for (std::size_t n = 0; n < cells.size(); ++n) {
      const auto& [results, refusal] = cells[n];
      row.push_back(result_cell(results, sequences));
      if (!results.empty() && results.front().text) {
        of_text = true;
        counts.insert(formatted("- at {}: {}", over.values[n], text_counts_text(*results.front().text)));
      }
      if (refusal.empty()) continue;
      refused = true;
      row.back().json.set("refused", refusal);
      refusals.push_back(formatted("{} at {}: {}", group.label(), over.values[n], refusal));
    }
    const std::int64_t runs = std::ssize(group.runs), finished = group.count(RunState::finished);
    row.push_back(finished == runs ? formatted("{}", runs) : formatted("{} of {} finished", finished, runs));
  }
  const std::string wrong =
      formatted("wrong {}{}", sequences ? "sequences" : "tokens", settings.generate ? " of generated answers" : "");
  const VariedQuestion& question = plan.question;
  const std::string with = changes_text(question.beside, question.changes);
  table.title =
      formatted("{}, {}, {} against {}{}: mean over seeds (standard deviation)", plan.report->task->name,
                question.split, of_text ? "perplexity" : wrong, question.option, with.empty() ? "" : " with " + with);
  for (const auto& notes : {std::vector<std::string>(counts.begin(), counts.end()), refusals}) {
    if (!notes.empty()) table.notes.push_back(joined(notes, "\n"));
  }
  return table;
}

}  // namespace

Result evaluate_over(const OverSettings& settings, const CommonOptions& common) {
  const std::vector<GridDimension> dimensions = parse_grid(settings.over, "--over");
  if (dimensions.size() != 1) throw UsageError("[eval] one option is varied: --over task.p-ignore=0.1,0.5,0.9");
  const GridDimension& over = dimensions.front();
  const Report report = make_report(settings.folders);
  const auto finished = [](const RunSummary& run) { return run.state == RunState::finished; };
  check(std::ranges::any_of(report.runs, finished), "eval", "none of the runs is finished");
  check_changes(settings.changes, report.runs);
  const std::vector<Plan> plans = plans_of(report, settings, over);
  const std::atomic<bool>& stop = watch_signals();
  bool refused = !report.problems.empty();
  std::vector<ResultTable> tables;
  for (const Plan& plan : plans) tables.push_back(evaluated(plan, over, settings, common, stop, refused));
  if (stop.load()) {
    say(common, "interrupted");
    return {signal_exit_code()};
  }
  for (const std::string& problem : report.problems) complain(formatted("not read: {}", problem));
  return {refused ? exit_code::failed : exit_code::done, JsonValue::object({{"tables", json_of(tables)}}),
          text_of(tables)};
}

}  // namespace tally
