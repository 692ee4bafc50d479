#include "tasks/sweep/run_cost.hpp"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "core/device/backend.hpp"
#include "nn/parameter_choice.hpp"
#include "tasks/command_line/progress.hpp"
#include "tasks/data/batch.hpp"
#include "tasks/evaluation/evaluate.hpp"
#include "tasks/evaluation/generate.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/print/table.hpp"
#include "tasks/training/train_step.hpp"

namespace tally {
namespace {

template <class F>
double time_of(F&& work) {
  const double begin = measured_seconds();
  work();
  synchronize(default_device());
  return measured_seconds() - begin;
}

double all_seconds(std::span<const CostedRuns> runs) {
  return std::accumulate(runs.begin(), runs.end(), 0.0,
                         [](double sum, const CostedRuns& some) { return sum + some.total(); });
}

}  // namespace

double measured_seconds() {
  if (default_device().type == DeviceType::cuda) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

RunCost measure_cost(const RunConfig& config) {
  constexpr std::int64_t measured = 3;
  const RunOptions& run = config.run;
  const std::unique_ptr<Task> task = config.make_task();
  const auto model = config.make_model(*task);
  const auto optimizer = Optimizer::make(config.optimiser, train_only(model->parameters(), run.train));
  const auto seed = static_cast<std::uint64_t>(run.seed);
  TrainStep train_step(*model, *optimizer, config.optimiser, seed, run.at_once());
  TrainingOrder order(task->splits().front(), run.batch, seed);

  RunCost cost{.steps = run.steps};
  for (std::int64_t n = 1; n <= 1 + measured; ++n) {
    const double seconds = time_of([&] {
      const Batch batch = batch_of(*task, order, n);
      train_step(batch, n, std::max(run.steps, 1 + measured));
    });
    if (n > 1) cost.step += seconds / measured;
  }
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

std::string cost_text(std::span<const CostedRuns> runs, std::int64_t jobs) {
  TableRows rows{{"run", "a step", "steps", "evaluations", "a run", "runs", "together"}};
  for (const CostedRuns& some : runs) {
    const RunCost& cost = some.of_each;
    rows.push_back({some.name, concat(short_number(cost.step, 3), " s"), with_commas(cost.steps),
                    duration_text(cost.evaluations), duration_text(cost.total()), to_text(some.count),
                    duration_text(some.total())});
  }
  const double all = all_seconds(runs);
  return concat(markdown_table(rows), "\n", duration_text(all), " together, ",
                duration_text(all / static_cast<double>(jobs)), " with ", jobs, jobs == 1 ? " run" : " runs",
                " at a time\n");
}

JsonValue cost_json(std::span<const CostedRuns> runs, std::int64_t jobs) {
  JsonValue list = JsonValue::array();
  for (const CostedRuns& some : runs) {
    list.push(JsonValue::object({{"run", some.name},
                                 {"step_s", some.of_each.step},
                                 {"steps", some.of_each.steps},
                                 {"evaluations_s", some.of_each.evaluations},
                                 {"run_s", some.of_each.total()},
                                 {"runs", some.count}}));
  }
  const double all = all_seconds(runs);
  return JsonValue::object({{"costs", std::move(list)},
                            {"seconds", all},
                            {"jobs", jobs},
                            {"seconds_left", all / static_cast<double>(jobs)}});
}

}  // namespace tally
