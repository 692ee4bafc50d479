// Scores of a split do not depend on how it is cut into batches.
#include "tasks/evaluate.hpp"

#include <gtest/gtest.h>

#include "tasks/config.hpp"

namespace tally {
namespace {

TEST(Evaluate, GivesTheSameForAnyBatch) {
  RunConfig config = RunConfig::make("flip-flop", "alibi", "quick");
  for (const auto& [name, value] :
       {std::pair{"task.length", "16"}, {"model.width", "8"}, {"model.heads", "2"}, {"model.layers", "1"}}) {
    config.set(name, value);
  }
  const auto task = config.make_task();
  const auto model = config.make_model(*task);
  // Sequences have between one and eight reads: a mean over batches weighs them differently.
  const Evaluation whole = evaluate(*model, *task, "ood-dense", 20, 20);
  for (const std::int64_t batch : {1, 7}) {
    const Evaluation found = evaluate(*model, *task, "ood-dense", 20, batch);
    EXPECT_NEAR(found.loss, whole.loss, 1e-6) << batch;
    EXPECT_EQ(found.wrong, whole.wrong) << batch;
    EXPECT_EQ(found.scored, whole.scored) << batch;
    EXPECT_EQ(found.wrong_sequences, whole.wrong_sequences) << batch;
    EXPECT_EQ(found.sequences, 20) << batch;
  }
  EXPECT_GT(whole.scored, 40);
}

}  // namespace
}  // namespace tally
