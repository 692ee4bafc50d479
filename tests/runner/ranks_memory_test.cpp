// Memory estimates of ranks that share a run.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "tests/runner/rank_runs.hpp"

namespace tally::testing {
namespace ranks_memory_test {

// The estimate of a dry run equals the memory of the first rank. On the CPU, the number of buckets in flight depends on
// the other ranks: there is one, or the estimate is an upper bound.
TEST_F(RanksOfMpi, TakeTheMemoryThatIsToldBefore) {
  struct Case {
    std::string name;
    int count;
    std::vector<std::string> options;
    bool several_buckets = false;
  };
  const std::string cuda_host = "--device=cuda-host", few = "--task.dense-count=1", short_run = "--steps=2";
  for (const Case& now : std::vector<Case>{
           {"alone", 1, {"--model.width=48"}},
           {"two", 2, {"--model.width=48"}},
           {"four", 4, {"--model.width=48"}},
           {"split", 4, {"--model.width=48", "--split-optimiser"}},
           {"sgd", 2, {"--model.width=48", "--split-optimiser", "--optimiser.name=sgd"}},
           {"evaluation", 2, {"--micro-batch=2", "--batch=4", "--eval-batch=64", "--task.eval-count=150"}},
           {"buckets",
            2,
            {"--model.width=96", "--length=8", "--batch=2", "--task.eval-count=1", "--task.sparse-count=1", few},
            true},
           {"device", 2, {cuda_host, few, short_run, "--batch=2"}},
           {"split-device", 2, {cuda_host, few, short_run, "--batch=2", "--model.width=80", "--split-optimiser"}}}) {
    const std::string run = folder_ / now.name;
    std::vector<std::string> words = training(run, "cope", now.options);
    const Finished trained = run_program(ranks(now.count, words), folder_);
    ASSERT_EQ(trained.code, 0) << trained.err;
    const double taken = parse_json(read_file(run + "/results.json"), {}, "results").real("peak_tensor_bytes");
    words.insert(words.end(), {"--dry-run", "--json"});
    const Finished dry = run_program(ranks(now.count, words), folder_);
    ASSERT_EQ(dry.code, 0) << dry.err;
    const JsonValue plan = parse_json(dry.out, {.max_depth = 16, .max_values = 10'000}, "plan");
    const double told = plan.real("memory_bytes");
    EXPECT_EQ(plan.boolean("memory_at_most"), now.count > 1 && now.options.front() != cuda_host) << now.name;
    if (now.several_buckets) {
      const double gradients = 4 * plan.real("parameters");
      EXPECT_LE(taken, told) << now.name;
      EXPECT_GE(taken, told - gradients / now.count) << now.name;
    } else {
      EXPECT_EQ(taken, told) << now.name;
    }
  }
}

}  // namespace ranks_memory_test
}  // namespace tally::testing
