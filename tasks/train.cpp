#include "tasks/train.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "autograd/finite.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/backend.hpp"
#include "tasks/statistics.hpp"

namespace tally {
namespace {

using Clock = std::chrono::steady_clock;

// What a run carries along beside the model, all of it rebuilt from metrics.jsonl after a kill.
struct History {
  std::vector<JsonValue> lines;
  double seconds = 0;
  std::int64_t tokens = 0;
  std::int64_t best_step = -1;
  double best_error = std::numeric_limits<double>::infinity();
  double best_loss = std::numeric_limits<double>::infinity();

  // Lower error on the first evaluation split is better, then lower loss; the earlier of equals stays.
  void consider(std::int64_t step, double error, double loss) {
    if (std::tie(error, loss) < std::tie(best_error, best_loss)) {
      best_error = error, best_loss = loss, best_step = step;
    }
  }
};

// One run from its newest checkpoint on.
class Run {
 public:
  Run(RunFolder& folder, TrainObserver& observer, const std::atomic<bool>& stop)
      : folder_(folder),
        config_(folder.config()),
        observer_(observer),
        stop_(stop),
        task_(config_.make_task()),
        model_(config_.make_model(*task_)),
        optimizer_(Optimizer::make(config_.optimiser, model_->parameters())),
        train_step_(*model_, *optimizer_, config_.optimiser, static_cast<std::uint64_t>(config_.run.seed)),
        order_(task_->splits().front(), config_.run.batch, static_cast<std::uint64_t>(config_.run.seed)) {}

  TrainOutcome go() {
    std::int64_t step = restore();
    observer_.started(config_, *model_, step);
    MetricsWriter metrics(folder_.metrics_path());
    metrics_ = &metrics;
    if (history_.lines.empty()) metrics.write(description());
    try {
      return train_from(step);
    } catch (const Diverged& why) {
      // The folder keeps it, until the run is resumed. A disk that is full too is not what is to be told.
      try {
        metrics.write(JsonValue::object({{"step", step}, {"diverged", why.what()}}));
      } catch (const Error&) {
      }
      throw;
    }
  }

 private:
  // `step` is the one at work, also when it throws.
  TrainOutcome train_from(std::int64_t& step) {
    // A kill between a checkpoint and the last line of its evaluation: the evaluation is done again.
    if (step > 0 && evaluation_due(step) && !evaluated(step) && !evaluate_all(step)) return TrainOutcome::interrupted;
    while (step < config_.run.steps) {
      ++step;
      advance(step);
      const bool stopping = stop_.load();
      if (stopping || saved_at(step)) save(step);
      if (stopping) return TrainOutcome::interrupted;
      if (evaluation_due(step) && !evaluate_all(step)) {
        if (!saved_at(step)) save(step);
        return TrainOutcome::interrupted;
      }
      if (saved_at(step)) prune(step);
    }
    finish();
    return TrainOutcome::done;
  }

  bool evaluation_due(std::int64_t step) const {
    return step == config_.run.steps || step % config_.eval_interval() == 0;
  }

  std::int64_t restore() {
    const auto checkpoint = folder_.newest_checkpoint(
        [this](const std::string& why) { observer_.message(concat("passed over a checkpoint: ", why)); });
    history_.tokens = checkpoint.tokens;
    if (checkpoint.step > 0) {
      try {
        check_same_model(checkpoint.record, config_, *task_);
        model_->load(checkpoint.model);
        load_state(checkpoint.optimiser);
      } catch (const Error& error) {
        fail("checkpoint", folder_.checkpoint_path(checkpoint.step), ": ", error.what());
      }
    }
    const std::vector<JsonValue> metrics = folder_.read_metrics();
    const std::optional<RunConfig> trained = folder_.trained_config(metrics);
    const std::vector<std::string> changes = trained ? differences(*trained, config_) : folder_.changes();
    for (const JsonValue& line : metrics) {
      if (line.contains("diverged") || (line.contains("step") && line.integer("step") > checkpoint.step)) continue;
      history_.lines.push_back(line);
    }
    // An evaluation that was cut off in the middle is dropped whole.
    if (!evaluated(checkpoint.step)) {
      std::erase_if(history_.lines, [&](const JsonValue& line) { return is_evaluation(line, checkpoint.step); });
    }
    for (const JsonValue& line : history_.lines) {
      if (!line.contains("step")) continue;
      if (line.string("split") == "train") {
        history_.seconds = line.real("seconds");
      } else if (line.string("split") == first_evaluation_split() && saved_at(line.integer("step"))) {
        history_.consider(line.integer("step"), line.real("token_error"), line.real("loss"));
      }
    }
    folder_.check_can_write_checkpoints(checkpoint.step + 1, config_.run.steps);
    // From here on the folder is written to.
    for (const std::string& change : changes) observer_.message(concat("changed: ", change));
    folder_.begin();
    // A resumed run may have other settings than the one that began.
    if (!history_.lines.empty() && history_.lines.front().contains("run")) history_.lines.front() = description();
    folder_.rewrite_metrics(history_.lines);
    return checkpoint.step;
  }

  void load_state(const NamedTensors& saved) {
    const NamedTensors state = optimizer_->state();
    check(saved.size() == state.size(), "checkpoint", "holds ", saved.size(), " tensors of optimiser state, not ",
          state.size());
    for (std::size_t i = 0; i < state.size(); ++i) {
      check(saved[i].first == state[i].first && saved[i].second.shape() == state[i].second.shape() &&
                saved[i].second.dtype() == state[i].second.dtype(),
            "checkpoint", "optimiser state '", saved[i].first, "' does not fit '", state[i].first, "'");
    }
    for (std::size_t i = 0; i < state.size(); ++i) Tensor(state[i].second).copy_from(saved[i].second);
  }

  static bool is_evaluation(const JsonValue& line, std::int64_t step) {
    return line.contains("step") && line.integer("step") == step && line.string("split") != "train";
  }

  bool evaluated(std::int64_t step) const {
    const auto lines = std::count_if(history_.lines.begin(), history_.lines.end(),
                                     [step](const JsonValue& line) { return is_evaluation(line, step); });
    return lines == static_cast<std::int64_t>(task_->splits().size()) - 1;
  }

  std::string first_evaluation_split() const { return task_->splits().at(1).name; }
  bool saved_at(std::int64_t step) const { return step == config_.run.steps || step % config_.save_interval() == 0; }

  void advance(std::int64_t step) {
    const auto begin = Clock::now();
    std::vector<Example> examples;
    for (const std::int64_t index : order_.indices(step)) {
      examples.push_back(task_->example(task_->splits().front().name, index));
    }
    batch_ = collate(examples);
    StepReport report = train_step_(batch_, step, config_.run.steps);
    history_.tokens += batch_.tokens.numel();
    history_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    report.tokens = history_.tokens;
    report.seconds = history_.seconds;
    if (step % config_.run.log_every == 0 || step == config_.run.steps) {
      metrics_->write(JsonValue::object({{"step", step},
                                         {"split", "train"},
                                         {"loss", report.loss},
                                         {"token_error", report.token_error},
                                         {"sequence_error", report.sequence_error},
                                         {"lr", report.lr},
                                         {"grad_norm", report.grad_norm},
                                         {"tokens", report.tokens},
                                         {"seconds", report.seconds}}));
    }
    observer_.stepped(report);
  }

  // The last update can have spoilt the model although loss and gradients were fine: no checkpoint keeps that.
  void refuse_bad_update(std::int64_t step) {
    for (const auto& [name, parameter] : model_->parameters()) {
      if (!all_finite(parameter)) report_divergence(step, concat("update of ", name), "");
    }
    const NoGrad only_the_value;
    const double loss = at_step(step, [&] {
      const Batch batch = batch_.to(model_->device());
      return cross_entropy(model_->forward(batch.tokens), batch.targets, batch.loss_mask).item();
    });
    if (!std::isfinite(loss)) report_divergence(step, "loss after the update", concat(": ", loss));
  }

  void save(std::int64_t step) {
    refuse_bad_update(step);
    metrics_->sync();
    folder_.write_checkpoint(
        {step, history_.tokens, model_->parameters(), optimizer_->state(), model_record(config_, *task_)});
  }

  // Those beyond the step at work are damaged ones, which count for nothing until they are written again.
  void prune(std::int64_t now) const {
    folder_.prune_checkpoints(history_.best_step,
                              [&](std::int64_t step) { return step <= now && saved_at(step); });
  }

  // False when it was stopped in the middle; what was evaluated is then done again by the resumed run.
  bool evaluate_all(std::int64_t step) {
    const bool last = step == config_.run.steps;
    for (std::size_t i = 1; i < task_->splits().size(); ++i) {
      const Split& split = task_->splits()[i];
      const std::int64_t wanted = last || config_.run.eval_count == 0 ? split.count : config_.run.eval_count;
      const Evaluation e = at_step(step, [&] {
        return evaluate(*model_, *task_, split.name, std::min(wanted, split.count), config_.run.eval_batch, &stop_);
      });
      if (stop_.load()) return false;
      if (!std::isfinite(e.loss)) report_divergence(step, concat("loss on ", split.name), concat(": ", e.loss));
      metrics_->write(evaluation_json(step, e));
      observer_.evaluated(step, e);
      if (i == 1 && saved_at(step)) history_.consider(step, e.token_error(), e.loss);
    }
    return true;
  }

  JsonValue description() const {
    return JsonValue::object({{"run", "tally"},
                              {"task", config_.task->name},
                              {"pe", config_.encoding.text()},
                              {"seed", config_.run.seed},
                              {"steps", config_.run.steps},
                              {"parameters", model_->parameter_count()},
                              {"config", config_.to_json()}});
  }

  void finish() {
    prune(config_.run.steps);
    JsonValue evaluations = JsonValue::array();
    for (const JsonValue& line : folder_.read_metrics()) {
      if (is_evaluation(line, config_.run.steps)) evaluations.push(line);
    }
    folder_.write_results(JsonValue::object({{"task", config_.task->name},
                                             {"pe", config_.encoding.text()},
                                             {"seed", config_.run.seed},
                                             {"steps", config_.run.steps},
                                             {"parameters", model_->parameter_count()},
                                             {"best_step", history_.best_step},
                                             {"evaluations", std::move(evaluations)},
                                             {"tokens", history_.tokens},
                                             {"seconds", history_.seconds},
                                             {"peak_tensor_bytes", memory_counters(model_->device()).peak_bytes}}));
  }

  RunFolder& folder_;
  const RunConfig& config_;
  TrainObserver& observer_;
  const std::atomic<bool>& stop_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<Transformer> model_;
  std::unique_ptr<Optimizer> optimizer_;
  TrainStep train_step_;
  TrainingOrder order_;
  History history_;
  MetricsWriter* metrics_ = nullptr;
  Batch batch_;  // of the latest step
};

}  // namespace

TrainOutcome train(RunFolder& folder, TrainObserver& observer, const std::atomic<bool>& stop) {
  if (folder.finished()) {
    folder.read_results();  // one that is damaged is not taken for the end of a run
    observer.message("the run is finished; nothing to do");
    return TrainOutcome::done;
  }
  folder.lock();
  return Run(folder, observer, stop).go();
}

}  // namespace tally
