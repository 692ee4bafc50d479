#include "tasks/runs/train.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <span>

#include "autograd/finite.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/device/backend.hpp"
#include "core/distributed/process_group.hpp"
#include "nn/parameter_choice.hpp"
#include "tasks/evaluation/generate.hpp"
#include "tasks/runs/metrics.hpp"
#include "tasks/training/parameter_shares.hpp"

namespace tally {
namespace {

using Clock = std::chrono::steady_clock;

// One run, from its newest checkpoint on.
class Run {
 public:
  Run(RunFolder& folder, TrainObserver& observer, const std::atomic<bool>& stop, OptimizerState state)
      : folder_(folder),
        config_(folder.config()),
        observer_(observer),
        stop_(stop),
        task_(config_.make_task()),
        model_(config_.make_model(*task_)),
        shares_(shares_for(state, train_only(model_->parameters(), config_.run.train))),
        optimizer_(Optimizer::make(config_.optimiser,
                                   shares_ ? shares_->own() : train_only(model_->parameters(), config_.run.train))),
        train_step_(*model_, *optimizer_, static_cast<std::uint64_t>(config_.run.seed), config_.run.at_once(),
                    shares_ ? &*shares_ : nullptr, config_.random_positions(*task_)),
        order_(task_->splits().front(), config_.run.batch, static_cast<std::uint64_t>(config_.run.seed)) {}

  TrainOutcome go() {
    check(!shares_ || optimizer_->elementwise(), "train",
          "the state of {} cannot be split over processes: a part of a parameter is not updated by itself",
          config_.optimiser.name);
    std::int64_t step = restore();
    observer_.started(config_, *model_, step);
    if (folder_.writes()) metrics_.emplace(folder_.metrics_path());
    note(StartRecord{step, Machine::here()});
    try {
      return train_from(step);
    } catch (const Diverged& why) {
      // The folder keeps the record until the run is resumed. A failed write, such as on a full disk, must not hide the
      // divergence.
      try {
        note(DivergenceRecord{step, why.what()});
      } catch (const Error&) {
      }
      throw;
    }
  }

 private:
  std::optional<ParameterShares> shares_for(OptimizerState state, const NamedTensors& trained) const {
    if (state == OptimizerState::whole || ranks_.alone()) return std::nullopt;
    return ParameterShares(trained, ranks_);
  }

  // Writes a record to the metrics. Only one rank writes.
  void note(const MetricsRecord& record) {
    if (metrics_) metrics_->write(record);
  }

  // `step` is the current step, also when this throws.
  TrainOutcome train_from(std::int64_t& step) {
    // After a kill between a checkpoint and the last line of its evaluation, the evaluation is repeated.
    if (step > 0 && evaluation_due(step) && !evaluated(step) && !evaluate_all(step)) return TrainOutcome::interrupted;
    while (step < config_.run.steps) {
      ++step;
      advance(step);
      const bool stopping = ranks_.any(stop_.load());
      if (stopping || saved_at(step)) save(step);
      if (stopping) return TrainOutcome::interrupted;
      if (evaluation_due(step) && !evaluate_all(step)) {
        if (!saved_at(step)) save(step);
        return TrainOutcome::interrupted;
      }
      if (saved_at(step)) prune();
    }
    return finish() ? TrainOutcome::done : TrainOutcome::interrupted;
  }

  bool evaluation_due(std::int64_t step) const {
    return step == config_.run.steps || step % config_.eval_interval() == 0;
  }

  // Reads everything before it writes anything. Returns the step from which the run is resumed.
  std::int64_t restore() {
    const auto checkpoint = folder_.newest_checkpoint(
        [this](const std::string& why) { observer_.message(formatted("passed over a checkpoint: {}", why)); });
    std::vector<MetricsRecord> records = read_metrics(folder_.metrics_path());
    folder_.refuse_lost_start(checkpoint, records);
    const std::int64_t step = checkpoint.step;
    tokens_ = checkpoint.tokens;
    if (checkpoint.file) {
      in_file(folder_.checkpoint_path(step), [&] {
        check_same_model(checkpoint.record, config_, *task_);
        check_same_data(checkpoint.data, *task_);
        load_tensors(model_->parameters(), checkpoint.tensors("model."));
        if (step > 0) {
          std::vector<StoredTensor> state = checkpoint.tensors("optimiser.");
          load_tensors(optimizer_->state(), shares_ ? shares_->own_rows(std::move(state)) : state);
        }
      });
    }
    const std::optional<RunConfig> trained = folder_.trained_config(records);
    const std::vector<std::string> changes = trained ? differences(*trained, config_) : folder_.changes();
    sequences_ = checkpoint.sequences;
    std::erase_if(records, [step](const MetricsRecord& record) {
      return step_of(record) > step || std::holds_alternative<DivergenceRecord>(record);
    });
    measurements_ = all_of<Measurement>(records);
    if (!evaluated(step)) {  // it was interrupted, and is repeated as a whole
      std::erase_if(records, [step](const MetricsRecord& record) {
        return step_of(record) == step && std::holds_alternative<Measurement>(record);
      });
      measurements_ = all_of<Measurement>(records);
    }
    if (const auto reports = all_of<StepReport>(records); !reports.empty()) seconds_ = reports.back().seconds;
    // A resumed run may have other settings than at its start.
    std::erase_if(records, [](const MetricsRecord& record) { return std::holds_alternative<RunRecord>(record); });
    records.insert(records.begin(), RunRecord{description()});
    if (folder_.writes()) folder_.check_can_write_checkpoints(step + 1, config_.run.steps);
    ranks_.check_same(step, "the step of the newest checkpoint");  // all ranks have finished reading

    for (const std::string& change : changes) observer_.message(formatted("changed: {}", change));
    if (folder_.writes()) set_aside_after(step);
    folder_.begin();
    if (folder_.writes()) rewrite_metrics(folder_.metrics_path(), records);
    return step;
  }

  // Skipped checkpoints are set aside, not overwritten.
  void set_aside_after(std::int64_t step) const {
    std::vector<std::int64_t> passed_over = folder_.checkpoint_steps();
    std::erase_if(passed_over, [step](std::int64_t other) { return other <= step; });
    if (passed_over.empty()) return;
    observer_.message(formatted("what was passed over is now in {}", folder_.set_aside(passed_over)));
  }

  bool evaluated(std::int64_t step) const {
    const auto done = std::count_if(measurements_.begin(), measurements_.end(),
                                    [step](const Measurement& measured) { return measured.step == step; });
    return done == static_cast<std::int64_t>(task_->splits().size()) - 1;
  }

  bool saved_at(std::int64_t step) const { return step == config_.run.steps || step % config_.save_interval() == 0; }

  void advance(std::int64_t step) {
    const auto begin = Clock::now();
    const std::vector<std::int64_t> sequences = order_.after(sequences_);
    batch_ = batch_of(*task_, sequences);
    StepReport report = train_step_(batch_, step, config_.run.steps);
    report.tokens = tokens_ += batch_.tokens.numel();
    report.sequences = sequences_ += std::ssize(sequences);
    report.seconds = seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
    if (step % config_.run.log_every == 0 || step == config_.run.steps) note(report);
    if (!report.note.empty()) observer_.message(report.note);
    observer_.stepped(report);
  }

  // The last update may have damaged the model although loss and gradients were finite. Such a model is never saved.
  void refuse_bad_update(std::int64_t step) {
    for (const auto& [name, parameter] : model_->parameters()) {
      if (!all_finite(parameter)) report_divergence(step, formatted("update of {}", name), "");
    }
    Evaluation found;
    at_step(step, [&] {
      const std::vector<Batch> parts = batch_.parts(config_.run.at_once());
      std::size_t next = 0;
      evaluate_batches(
          *model_, [&] { return next < parts.size() ? std::optional(parts[next++]) : std::nullopt; }, found);
    });
    if (!std::isfinite(found.loss)) report_divergence(step, "loss after the update", formatted(": {}", found.loss));
  }

  void save(std::int64_t step) {
    refuse_bad_update(step);
    const NamedTensors state = shares_ ? shares_->whole(optimizer_->state()) : optimizer_->state();
    if (!folder_.writes()) return;
    metrics_->sync();
    folder_.write_checkpoint({step, tokens_, sequences_, model_record(config_, *task_), task_->data_record()},
                             model_->parameters(), state);
  }

  // The best step with a checkpoint: lowest error on the first evaluation split, then lowest loss; on text, only the
  // loss. Ties go to the earlier step. -1 if none was evaluated.
  std::int64_t best_step() const {
    const auto rank = [](const Evaluation& e) { return std::pair(e.text ? 0 : e.token_error(), e.loss); };
    const Measurement* best = nullptr;
    for (const Measurement& measured : measurements_) {
      if (measured.evaluation.split != task_->splits().at(1).name || !saved_at(measured.step)) continue;
      if (best == nullptr || rank(measured.evaluation) < rank(best->evaluation)) best = &measured;
    }
    return best == nullptr ? -1 : best->step;
  }

  void prune() const {
    if (!folder_.writes()) return;
    folder_.prune_checkpoints(
        best_step(), [this](std::int64_t step) { return saved_at(step); },
        [this](const std::string& why) { observer_.message(formatted("not removed: {}", why)); });
  }

  // Returns false if it was stopped; the resumed run then repeats the whole evaluation.
  bool evaluate_all(std::int64_t step) {
    const bool last = step == config_.run.steps;
    for (std::size_t i = 1; i < task_->splits().size(); ++i) {
      const Split& split = task_->splits()[i];
      const std::int64_t wanted = last || config_.run.eval_count == 0 ? split.count : config_.run.eval_count;
      const std::int64_t count = std::min(wanted, split.count);
      const auto begin = Clock::now();
      const Evaluation e = at_step(step, [&] {
        return evaluate(*model_, *task_, split.name, count, sequences_at_once(split), &stop_,
                        [&](std::int64_t done) { observer_.evaluating(step, split, done, count); });
      });
      evaluation_seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
      if (ranks_.any(stop_.load())) return false;
      if (!std::isfinite(e.loss))
        report_divergence(step, formatted("loss on {}", split.name), formatted(": {}", e.loss));
      note(Measurement{step, e});
      measurements_.push_back({step, e});
      observer_.evaluated(step, e);
    }
    return true;
  }

  // Adds a description of the run to a record.
  JsonValue described(JsonValue json) const {
    json.set("task", config_.task->name);
    json.set("pe", config_.encoding.text());
    json.set("seed", config_.run.seed);
    json.set("steps", config_.run.steps);
    json.set("parameters", model_->parameter_count());
    return json;
  }

  JsonValue description() const {
    return described(JsonValue::object({{"run", "tally"}})).set("config", folder_.stored_config());
  }

  // Evaluates generated answers on every evaluation split. Returns false if it was stopped; the resumed run then
  // repeats this evaluation.
  bool generate_all(JsonValue& generated) {
    for (const Split& split : std::span(task_->splits()).subspan(1)) {
      const std::int64_t step = config_.run.steps;
      const auto begin = Clock::now();
      const Evaluation e = at_step(step, [&] {
        return evaluate_generated(*model_, *task_, split.name, split.count, config_.run.eval_batch, &stop_,
                                  [&](std::int64_t done) { observer_.evaluating(step, split, done, split.count); });
      });
      evaluation_seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
      if (ranks_.any(stop_.load())) return false;
      generated.push(evaluation_json(step, e));
      observer_.evaluated(step, e);
    }
    return true;
  }

  // Returns false if it was stopped.
  bool finish() {
    prune();
    JsonValue generated = JsonValue::array();
    if (config_.run.eval_generated && !generate_all(generated)) return false;
    JsonValue evaluations = JsonValue::array();
    for (const Measurement& measured : measurements_) {
      if (measured.step == config_.run.steps) evaluations.push(evaluation_json(measured.step, measured.evaluation));
    }
    JsonValue results = described(JsonValue::object());
    results.set("best_step", best_step());
    results.set("evaluations", std::move(evaluations));
    if (config_.run.eval_generated) results.set("generated", std::move(generated));
    results.set("tokens", tokens_);
    results.set("seconds", seconds_);
    results.set("evaluation_seconds", evaluation_seconds_);
    results.set("peak_tensor_bytes", memory_counters(model_->device()).peak_bytes);
    if (folder_.writes()) folder_.write_results(results);
    ranks_.barrier();  // the run is finished for all observers
    return true;
  }

  const ProcessGroup& ranks_ = ProcessGroup::world();
  RunFolder& folder_;
  const RunConfig& config_;
  TrainObserver& observer_;
  const std::atomic<bool>& stop_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<SequenceModel> model_;
  std::optional<ParameterShares> shares_;  // if the optimiser's state is split
  std::unique_ptr<Optimizer> optimizer_;
  TrainStep train_step_;
  TrainingOrder order_;
  // Rebuilt from checkpoint and metrics after a kill.
  std::int64_t tokens_ = 0, sequences_ = 0;
  double seconds_ = 0, evaluation_seconds_ = 0;  // the latter of this process only
  std::vector<Measurement> measurements_;
  std::optional<MetricsWriter> metrics_;
  Batch batch_;  // of the latest step
};

}  // namespace

TrainOutcome train(RunFolder& folder, TrainObserver& observer, const std::atomic<bool>& stop, OptimizerState state) {
  if (folder.finished()) {
    folder.read_results();  // damaged results do not count as the end of a run
    observer.message("the run is finished; nothing to do");
    return TrainOutcome::done;
  }
  folder.lock();
  return Run(folder, observer, stop, state).go();
}

}  // namespace tally
