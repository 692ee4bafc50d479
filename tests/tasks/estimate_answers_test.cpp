// The memory estimate of generated answers.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <utility>

#include "core/device/backend.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/evaluation/generate.hpp"
#include "tasks/training/train_step.hpp"

namespace tally {
namespace estimate_answers_test {

// Generation keeps a KV cache, while a pass over whole sequences does not.
TEST(EstimateOfAnswers, IsTheMemoryOfTheRun) {
  for (const char* encoding : {"rope", "cope", "none"}) {
    RunConfig config = RunConfig::make("selective-copy", encoding, "quick");
    for (const auto& [name, value] :
         {std::pair{"batch", "1"}, {"model.layers", "3"}, {"eval-batch", "40"}, {"task.eval-count", "40"}}) {
      config.set(name, value);
    }
    const double told = estimate_training(config, *config.make_task()).total();
    config.set("eval-generated", "false");
    const MemoryEstimate without = estimate_training(config, *config.make_task());
    const std::unique_ptr<Task> task = config.make_task();
    reset_peak_memory();
    const std::size_t before = memory_counters().live_bytes;
    {
      const auto model = config.make_model(*task);
      const auto optimizer = Optimizer::make(config.optimiser, model->parameters());
      TrainStep step(*model, *optimizer, 1);
      const Batch batch = collate(examples_of(*task, "train", 0, config.run.batch));
      step(batch, 1, 10);
      for (const Split& split : std::span(task->splits()).subspan(1)) {
        evaluate(*model, *task, split.name, 40, 40);
        evaluate_generated(*model, *task, split.name, 40, 40);
      }
    }
    EXPECT_EQ(told, static_cast<double>(memory_counters().peak_bytes - before)) << encoding;
    EXPECT_GE(told, without.total());
  }
}

}  // namespace estimate_answers_test
}  // namespace tally
