// The remaining time that a plan estimates.
#include "tasks/sweep/run_plan.hpp"

#include <gtest/gtest.h>

#include "tasks/data/task.hpp"
#include "tasks/results/report.hpp"
#include "tasks/runs/run_folder.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::run_plan_test {

RunConfig of_seed(std::int64_t seed) {
  RunConfig config = RunConfig::make("flip-flop", "none", "quick");
  config.set("steps", "200");
  config.run.seed = seed;
  return config;
}

// One run took 100 s, another is half trained, and a third has not begun.
TEST(RunPlans, TheTimeLeftIsThatOfTheMissingSteps) {
  const TemporaryFolder folder;
  const std::string plans = folder / "plan";
  RunFolder::create(plans + "/a", of_seed(1), false)
      .write_results(JsonValue::object({{"best_step", 200}, {"evaluations", JsonValue::array()}, {"seconds", 100.0}}));
  const RunFolder half = RunFolder::create(plans + "/b", of_seed(2), false);
  half.check_can_write_checkpoints(1, 200);
  half.write_checkpoint({100}, {{"x", Tensor::zeros({1})}}, {});
  const auto run = [](const char* name, std::int64_t seed, RunState state) {
    return PlannedRun{name, of_seed(seed), state};
  };
  const CommonOptions common;
  std::vector<PlannedRun> runs;
  runs.push_back(run("a", 1, RunState::finished));
  runs.push_back(run("b", 2, RunState::unfinished));
  EXPECT_NEAR(RunPlan(plans, std::move(runs), common).seconds_left(1).value(), 50, 1e-9);

  runs.clear();
  runs.push_back(run("a", 1, RunState::finished));
  runs.push_back(run("b", 2, RunState::unfinished));
  runs.push_back(run("c", 3, RunState::waiting));
  const RunPlan three(plans, std::move(runs), common);
  EXPECT_NEAR(three.seconds_left(1).value(), 150, 1e-9);
  EXPECT_NEAR(three.seconds_left(2).value(), 100, 1e-9) << "the longest has nobody beside it in the end";
}

// Plans of several tables write to one folder, each its own entries.
TEST(RunPlans, WhatOtherPlansWroteStays) {
  const TemporaryFolder folder;
  const std::string plans = folder / "plan", file = formatted("{}/{}", plans, sweep_file_name);
  RunFolder::create(plans + "/a", of_seed(1), false)
      .write_results(JsonValue::object({{"best_step", 200}, {"evaluations", JsonValue::array()}}));
  const auto entry = [](const char* name, std::int64_t seed) {
    return JsonValue::object({{"name", name}, {"state", "waiting"}, {"config", of_seed(seed).to_json()}});
  };
  write_file(file,
             write_json(JsonValue::object({{"format", 1}, {"runs", JsonValue::Array{entry("a", 1), entry("z", 9)}}})));
  CommonOptions common;
  common.quiet = true;
  std::vector<PlannedRun> runs;
  runs.push_back({"a", of_seed(1), RunState::finished});
  RunPlan(plans, std::move(runs), common).execute(1);
  std::map<std::string, std::string> states;
  const JsonValue after = read_sweep_file(file);
  for (const JsonValue& run : after.elements("runs")) states[run.string("name")] = run.string("state");
  EXPECT_EQ(states, (std::map<std::string, std::string>{{"a", "finished"}, {"z", "waiting"}}));
}

}  // namespace tally::testing::run_plan_test
