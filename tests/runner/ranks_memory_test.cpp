// Memory estimates of ranks that share a run.
#include <gtest/gtest.h>

#include "tests/runner/rank_runs.hpp"

namespace tally::testing::ranks_memory_test {

// The estimate of a dry run equals the memory of the first rank. On the CPU, the number of buckets in flight depends on
// the other ranks: there is one, or the estimate is an upper bound.
TEST_F(RanksOfMpi, TakeTheMemoryThatIsToldBefore) {
  struct Case {
    std::string name;
    int count;
    std::string options;
  };
  const std::string device = "--device=cuda-host --task.dense-count=1 --steps=2 --batch=2 ";
  for (const auto& [name, count, options] : std::vector<Case>{
           {"alone", 1, "--model.width=48"},
           {"two", 2, "--model.width=48"},
           {"four", 4, "--model.width=48"},
           {"split", 4, "--model.width=48 --split-optimiser"},
           {"sgd", 2, "--model.width=48 --split-optimiser --optimiser.name=sgd"},
           {"evaluation", 2, "--micro-batch=2 --batch=4 --eval-batch=64 --task.eval-count=150"},
           {"buckets", 2,
            "--model.width=96 --length=8 --batch=2 --task.eval-count=1 --task.sparse-count=1 --task.dense-count=1"},
           {"device", 2, device},
           {"split-device", 2, device + "--model.width=80 --split-optimiser"}}) {
    const std::string line = training(name, "cope", options);
    const Finished trained = run_ranks(count, line);
    ASSERT_EQ(trained.code, 0) << trained.err;
    const double taken = file_json(name + "/results.json").real("peak_tensor_bytes");
    const Finished dry = run_ranks(count, line + " --dry-run --json");
    ASSERT_EQ(dry.code, 0) << dry.err;
    const JsonValue plan = parse_json(dry.out, {}, "plan");
    const double told = plan.real("memory_bytes"), gradients = 4 * plan.real("parameters");
    EXPECT_EQ(plan.boolean("memory_at_most"), count > 1 && !holds(options, "cuda-host")) << name;
    if (name == "buckets") {
      EXPECT_LE(taken, told);
      EXPECT_GE(taken, told - gradients / count);
    } else {
      EXPECT_EQ(taken, told) << name;
    }
  }
}

}  // namespace tally::testing::ranks_memory_test
