// tally eval: errors of a trained model with counts, also on sequences longer than those it was trained on, and of
// answers that it generates by itself.
#include <algorithm>
#include <limits>
#include <memory>

#include "tasks/estimate.hpp"
#include "tasks/generate.hpp"
#include "tasks/printable.hpp"
#include "tasks/runner/commands.hpp"
#include "tasks/runner/progress.hpp"
#include "tasks/runner/trained_model.hpp"

namespace tally {
namespace {

struct EvalSettings {
  std::string run, split, checkpoint = "newest";
  std::vector<std::int64_t> lengths;
  std::int64_t count = 0;
  bool generate = false;
};

// The run's task with sequences of another length.
std::unique_ptr<Task> task_of_length(const RunConfig& config, std::int64_t length) {
  const std::unique_ptr<Options> options = config.task_options->clone();
  const std::vector<OptionInfo> infos = list_options(*options);
  if (std::none_of(infos.begin(), infos.end(), [](const OptionInfo& info) { return info.name == "length"; })) {
    throw UsageError(
        concat("[eval] the task ", config.task->name, " has no option 'length', so --lengths means nothing"));
  }
  return as_usage([&] {
    RunConfig other = config.clone();
    other.set("task.length", to_text(length));
    return other.make_task();
  });
}

class Evaluator {
 public:
  Evaluator(const EvalSettings& settings, const CommonOptions& common)
      : settings_(settings), common_(common), trained_(load_trained(settings.run, settings.checkpoint)) {}

  Result run() {
    say(common_, concat(printable(trained_.folder.path()), ", step ", trained_.step));
    const RunConfig& config = trained_.folder.config();
    std::vector<std::unique_ptr<Task>> tasks;  // all are made first: a wrong length is wrong usage
    for (const std::int64_t length : settings_.lengths) tasks.push_back(task_of_length(config, length));
    const std::vector<Split> splits = splits_of(*trained_.task);
    for (const auto& task : tasks) splits_of(*task);
    if (tasks.empty()) run_splits(*trained_.task, splits, "");
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      run_splits(*tasks[i], splits_of(*tasks[i]), concat("length ", settings_.lengths[i], "  "));
    }
    if (!common_.json) return {code_};
    return {code_,
            JsonValue::object(
                {{"run", trained_.folder.path()}, {"step", trained_.step}, {"evaluations", std::move(evaluations_)}})};
  }

 private:
  // Those that are asked for. Throws UsageError for one that is not there or has not as many sequences.
  std::vector<Split> splits_of(const Task& task) const {
    std::vector<Split> splits(task.splits().begin() + 1, task.splits().end());
    if (!settings_.split.empty()) splits = {as_usage([&] { return task.split(settings_.split); })};
    for (const Split& split : splits) {
      if (split.count == 0 && settings_.count == 0) {
        throw UsageError(concat("[eval] the split '", split.name, "' is endless; say how many sequences with --count"));
      }
      as_usage([&] { return task.split_holding(split.name, 0, settings_.count); });
    }
    return splits;
  }

  void run_splits(const Task& task, const std::vector<Split>& splits, const std::string& label) {
    for (const Split& split : splits) {
      try {
        run_split(task, split, label);
      } catch (const Error& error) {  // an encoding that cannot go on at this length: the others still can
        complain(concat(label, split.name, ": ", error.what()));
        code_ = exit_code::failed;
      }
    }
  }

  void run_split(const Task& task, const Split& split, const std::string& label) {
    const RunConfig& config = trained_.folder.config();
    check_fits(estimate_evaluation(config, task, config.run.eval_batch, split.length));
    const std::int64_t count = settings_.count == 0 ? split.count : settings_.count;
    const auto& evaluate_as = settings_.generate ? evaluate_generated : evaluate;
    const Evaluation result = evaluate_as(*trained_.model, task, split.name, count, config.run.eval_batch, nullptr);
    evaluations_.push(evaluation_json(trained_.step, result).set("length", split.length));
    tell(common_, concat(label, split.name, ": ", evaluation_text(result)));
  }

  const EvalSettings& settings_;
  const CommonOptions& common_;
  TrainedModel trained_;
  JsonValue evaluations_ = JsonValue::array();
  int code_ = exit_code::done;
};

}  // namespace

std::function<Result()> declare_eval(CommandLine& line) {
  const auto settings = std::make_shared<EvalSettings>();
  line.add("RUN", &settings->run, "folder of the run", {.required = true});
  line.add("--split", &settings->split, "one split; all but the training split without");
  line.add("--lengths", &settings->lengths, "sequences of these lengths, where the task has one: 64,128",
           {.least = 1, .most = std::numeric_limits<std::int32_t>::max()});
  line.add("--count", &settings->count, "sequences of each split; 0: all", {.least = 0, .most = endless_count});
  line.add("--generate", &settings->generate,
           "the model goes on from its own answers: each is fed back, where the task gives the right ones else");
  line.add("--checkpoint", &settings->checkpoint, checkpoint_help);
  return [settings, &common = line.common] { return Evaluator(*settings, common).run(); };
}

}  // namespace tally
