#include "tasks/checks/run_cost.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <span>

#include "core/device/backend.hpp"
#include "nn/parameter_choice.hpp"
#include "tasks/data/batch.hpp"
#include "tasks/evaluation/evaluate.hpp"
#include "tasks/evaluation/generate.hpp"
#include "tasks/training/train_step.hpp"

namespace tally {
namespace {

template <class F>
double time_of(F&& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  synchronize(default_device());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

RunCost measure_cost(const RunConfig& config) {
  constexpr std::int64_t most_steps = 4;
  constexpr double patience = 2;  // seconds, for slow models
  const RunOptions& run = config.run;
  const std::unique_ptr<Task> task = config.make_task();
  const auto model = config.make_model(*task);
  const auto optimizer = Optimizer::make(config.optimiser, train_only(model->parameters(), run.train));
  const auto seed = static_cast<std::uint64_t>(run.seed);
  TrainStep train_step(*model, *optimizer, seed, run.at_once());
  TrainingOrder order(task->splits().front(), run.batch, seed);

  double step = std::numeric_limits<double>::infinity(), spent = 0;
  for (std::int64_t n = 1; n <= most_steps && spent < patience; ++n) {
    const double seconds = time_of([&] { train_step(batch_of(*task, order, n), n, std::max(run.steps, most_steps)); });
    step = std::min(step, seconds);
    spent += seconds;
  }
  RunCost cost{.training = step * static_cast<double>(run.steps)};
  const std::int64_t on_the_way = (run.steps - 1) / config.eval_interval();
  for (const Split& split : std::span(task->splits()).subspan(1)) {
    const std::int64_t looked_at = run.eval_count == 0 ? split.count : std::min(run.eval_count, split.count);
    const auto of_one = [&](const auto& evaluate_as, std::int64_t at_once) {
      const std::int64_t batch = std::min(at_once, split.count);
      const double seconds = time_of([&] { evaluate_as(*model, *task, split.name, batch, batch, nullptr, {}); });
      return seconds / static_cast<double>(batch);
    };
    cost.evaluations +=
        of_one(evaluate, sequences_at_once(split)) * static_cast<double>(split.count + on_the_way * looked_at);
    if (run.eval_generated)
      cost.evaluations += of_one(evaluate_generated, run.eval_batch) * static_cast<double>(split.count);
  }
  return cost;
}

}  // namespace tally
