// tally eval: error rates of a trained model with counts, also for sequences longer than the training sequences and for
// free-running generation. With --over, of several models as one option of their task changes.
#include <algorithm>
#include <limits>
#include <memory>

#include "tasks/checks/estimate.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/command_line/training.hpp"
#include "tasks/commands/parts/evaluate_over.hpp"
#include "tasks/commands/parts/trained_model.hpp"
#include "tasks/evaluation/generate.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/print/table.hpp"
#include "tasks/text/prepare/token_file.hpp"

namespace tally {
namespace {

struct EvalSettings : OverSettings {
  std::string checkpoint = "newest", data, token_type;
  std::vector<std::int64_t> lengths;
  std::int64_t stride = 0;
  bool by = false;
};

// A task that --lengths or another option requests instead of the run's own.
struct OtherTask {
  std::string label;  // "length 64  ", empty for the run's own lengths
  std::vector<ChangedOption> changes;
};

std::vector<OtherTask> other_tasks(const RunConfig& config, const EvalSettings& settings) {
  std::vector<ChangedOption> all;
  if (!settings.data.empty()) all = other_text(config, settings.data, "--data");
  if (!settings.token_type.empty()) all.push_back({"token-type", settings.token_type, "--token-type"});
  std::int64_t stride = settings.stride;
  if (!settings.lengths.empty() && has_option(config, "stride")) {  // all lengths on the same targets
    const auto [shortest, longest] = std::ranges::minmax(settings.lengths);
    if (stride == 0) stride = std::max<std::int64_t>(1, shortest / 2);
    all.push_back({"after", to_text(longest), "--lengths"});
  }
  if (stride > 0) all.push_back({"stride", to_text(stride), "--stride"});
  std::vector<OtherTask> others;
  for (const std::int64_t length : settings.lengths) {
    others.push_back({formatted("length {}  ", length), {{"length", to_text(length), "--lengths"}}});
    others.back().changes.insert(others.back().changes.end(), all.begin(), all.end());
  }
  if (others.empty() && !all.empty()) others.push_back({"", all});
  return others;
}

// The requested splits. Throws UsageError for an unknown split, or one with too few sequences.
std::vector<Split> splits_of(const Task& task, const EvalSettings& settings) {
  std::vector<Split> splits;
  if (settings.split.empty()) {
    const std::span<const Split> all = evaluation_splits(task);
    splits.assign(all.begin(), all.end());
  } else {
    splits = {as_usage([&] { return task.split(settings.split); })};
  }
  for (const Split& split : splits) {
    if (split.count == 0 && settings.count == 0) {
      throw UsageError(formatted("[eval] the split '{}' is endless; say how many sequences with --count", split.name));
    }
    as_usage([&] { return task.split_holding(split.name, 0, settings.count); });
  }
  return splits;
}

// "gap | tokens wrong | ..." and the means over its rows.
std::string breakdown_text(const Evaluation& e) {
  TableRows rows{{e.breakdown, "tokens wrong", "95% interval", "tokens", "sequences wrong", "sequences"}};
  for (const auto& [key, counts] : e.by) {
    rows.push_back({to_text(std::int64_t{key}), percent_text(counts.token_error()),
                    interval_text(counts.wrong, counts.scored), with_commas(counts.scored),
                    percent_text(counts.sequence_error()), with_commas(counts.sequences)});
  }
  rows.push_back({"mean", percent_text(e.mean_token_error()), "", "", percent_text(e.mean_sequence_error()), ""});
  return formatted("\n{}", markdown_table(rows));
}

Result run_eval(const EvalSettings& settings, const CommonOptions& common) {
  if (!settings.over.empty()) return evaluate_over(settings, common);
  if (settings.folders.size() != 1) {
    throw UsageError("[eval] several runs are evaluated with --over; 'tally report' prints their results");
  }
  const TrainedModel trained =
      load_trained(settings.folders.front(), settings.checkpoint, settings.changes, settings.data);
  const RunConfig& config = trained.config;
  say(common, formatted("{}, step {}{}", printable(trained.folder.path()), trained.step,
                        settings.changes.empty() ? "" : ", with " + printable(joined(settings.changes))));
  struct Work {
    const Task& task;
    Split split;
    std::string label;
  };
  std::vector<std::unique_ptr<Task>> tasks;
  std::vector<Work> works;  // all are prepared first, because a wrong length is wrong usage
  for (const OtherTask& other : other_tasks(config, settings)) {
    tasks.push_back(make_other_task(config, *trained.task, other.changes));
    for (const Split& split : splits_of(*tasks.back(), settings)) {
      works.push_back({*tasks.back(), split, other.label + split.name});
    }
  }
  if (tasks.empty()) {
    for (const Split& split : splits_of(*trained.task, settings)) works.push_back({*trained.task, split, split.name});
  }
  if (settings.by && trained.task->breakdown().empty()) {
    throw UsageError(formatted("[eval] the task {} breaks its errors down by nothing", config.task->name));
  }
  JsonValue evaluations = JsonValue::array();
  int code = exit_code::done;
  std::size_t widest = 0;
  for (const Work& work : works) widest = std::max(widest, work.label.size());
  for (const auto& [task, split, label] : works) {
    try {
      const std::int64_t batch = settings.generate ? config.run.eval_batch : sequences_at_once(split);
      check_fits(estimate_evaluation(config, task, batch, split.length));
      const auto& evaluate_as = settings.generate ? evaluate_generated : evaluate;
      const Evaluation result = evaluate_as(*trained.model, task, split.name,
                                            settings.count == 0 ? split.count : settings.count, batch, nullptr, {});
      evaluations.push(evaluation_json(trained.step, result).set("length", split.length));
      const std::string pad(widest - label.size(), ' ');
      tell(common, formatted("{}: {}{}", label, pad, evaluation_text(result, stdout)));
      if (settings.by) tell(common, breakdown_text(result));
    } catch (const Error& error) {  // an encoding may not support this length; the other lengths still run
      complain(formatted("{}: {}", label, error.what()));
      code = exit_code::failed;
    }
  }
  if (!common.json) return {code};
  return {code, JsonValue::object({{"run", trained.folder.path()},
                                   {"step", trained.step},
                                   {"changes", joined(settings.changes)},
                                   {"evaluations", std::move(evaluations)}})};
}

}  // namespace

std::function<Result()> declare_eval(CommandLine& line) {
  const auto settings = std::make_shared<EvalSettings>();
  line.add("RUN", &settings->folders, "folder of the run; with --over also several runs, or folders with finished runs",
           {.required = true});
  line.add("--over", &settings->over,
           "option=value,value: a table of the errors for each value of a task's option: task.length=64,256, "
           "task.p-ignore=0.1,0.9, task.blanks=8,64");
  line.add("--split", &settings->split,
           "one split; default: all except the training split, or with --over the first of these");
  line.add("--lengths", &settings->lengths, "sequences of these lengths, if the task has a length: 64,128",
           {.least = 1, .most = std::numeric_limits<std::int32_t>::max(), .excludes = {"--over"}});
  line.add("--stride", &settings->stride,
           "on text: step between windows; only the new targets of a window count; 0: side by side, or with --lengths "
           "half the shortest, so that all lengths have the same targets",
           {.least = 0, .most = std::numeric_limits<std::int32_t>::max(), .excludes = {"--over"}});
  line.add("--data", &settings->data,
           "on text: another folder made by `tally prepare` with the same tokenizer, or token files of other programs "
           "with the same ids",
           {.excludes = {"--over"}});
  line.add("--token-type", &settings->token_type, formatted("of --data: {}", token_format_help),
           {.allowed = {std::begin(token_format_names), std::end(token_format_names)}});
  line.add("--count", &settings->count, "sequences per split; 0: all", {.least = 0, .most = endless_count});
  line.add("--generate", &settings->generate, "feed the model's own answers back, instead of the right ones");
  line.add("--by", &settings->by,
           "a table of the errors by length, gap or another key of the task; always part of --json",
           {.excludes = {"--over"}});
  line.add("--set", &settings->changes, changes_help);
  line.add("--checkpoint", &settings->checkpoint, checkpoint_help, {.excludes = {"--over"}});
  return [settings, &common = line.common] { return run_eval(*settings, common); };
}

}  // namespace tally
