#include "tasks/commands/parts/varied_run.hpp"

#include "core/error.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/command_line/progress.hpp"
#include "tasks/evaluation/generate.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/runs/model_record.hpp"

namespace tally {

VariedTask::VariedTask(const RunConfig& config, const std::string& option, const std::string& text,
                       const TaskSettings& others) {
  RunConfig other = config.clone();
  as_usage([&] {
    other.set(option, text);
    for (const auto& [name, setting] : others) other.set(name, setting);
    task = other.make_task();
  });
  value = settings_of(other).at(option);
  if (task->vocabulary_record() != config.make_task()->vocabulary_record()) {
    throw UsageError(
        formatted("[eval] {} = {} changes the symbols, which trained models cannot learn any more", option, text));
  }
}

VariedRun::VariedRun(const RunSummary& run, std::vector<std::string> changes, const CommonOptions& common,
                     const std::atomic<bool>& stop)
    : run_(run), changes_(std::move(changes)), common_(common), stop_(stop) {}

void VariedRun::evaluate(const VariedQuestion& question, VariedCell& cell) {
  const std::string label = formatted("{}, {}={}", run_.path, question.option, question.value);
  try {
    const VariedTask varied(run_.config, question.option, question.value, question.beside);
    const Split& split = varied.task->split(question.split);
    const std::int64_t count = question.count == 0 ? split.count : question.count;
    if (!trained_) trained_.emplace(load_trained(run_.path, "newest", changes_));
    const RunConfig& config = trained_->config;
    trained_->model->check_length(split.length);
    const std::int64_t batch = question.generate ? config.run.eval_batch : sequences_at_once(split);
    check_fits(estimate_evaluation(config, *varied.task, batch, split.length));
    const auto& evaluate_as = question.generate ? evaluate_generated : tally::evaluate;
    const Evaluation found = evaluate_as(*trained_->model, *varied.task, split.name, count, batch, &stop_, {});
    if (stop_.load()) return;
    say(common_, formatted("{}: {}", printable(label), evaluation_text(found, common_.json ? stderr : stdout)));
    cell.results.push_back(found);
  } catch (const Error& why) {
    complain(formatted("{}: {}", label, why.what()));
    cell.refusal = printable(why.what());
  }
}

}  // namespace tally
