// Learning rate schedules in runs.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace schedule_test {

std::vector<std::string> training(const std::string& run, const std::vector<std::string>& more) {
  std::vector<std::string> options{"--optimiser.lr=0.01", "--optimiser.warmup=2"};
  options.insert(options.end(), more.begin(), more.end());
  return tiny_training(run, "rope", options);
}

std::vector<double> rates_of(const std::string& run) {
  std::vector<double> rates;
  for (const std::string& line : metrics_of(run)) {
    const JsonValue value = parse_json(line, {}, "metrics");
    if (value.contains("lr")) rates.push_back(value.real("lr"));
  }
  return rates;
}

TEST(Schedules, AreThoseThatARunHas) {
  const TemporaryFolder folder;
  const auto expect_rates = [&](const std::vector<std::string>& options, const std::vector<double>& expected) {
    const std::string run = folder / options[0].substr(options[0].find('=') + 1);
    const Finished trained = run_tally(training(run, options), folder);
    ASSERT_EQ(trained.code, 0) << trained.err;
    const std::vector<double> found = rates_of(run);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t n = 0; n < found.size(); ++n) EXPECT_NEAR(found[n], expected[n], 1e-15) << run << " " << n;
  };
  expect_rates({"--optimiser.schedule=wsd", "--optimiser.cooldown=0.25", "--steps=8"},
               {0.005, 0.01, 0.01, 0.01, 0.01, 0.01, 0.02 / 3, 0.01 / 3});
  expect_rates({"--optimiser.schedule=inverse-root", "--steps=8"},
               {0.005, 0.01, 0.01 * std::sqrt(2. / 3), 0.01 * std::sqrt(2. / 4), 0.01 * std::sqrt(2. / 5),
                0.01 * std::sqrt(2. / 6), 0.01 * std::sqrt(2. / 7), 0.01 / 2});
}

// A run resumed for more steps before its cooldown equals one planned with these steps.
TEST(Schedules, StableStepsAreThoseOfALongerRun) {
  const TemporaryFolder folder;
  const std::string run = folder / "run", straight = folder / "straight";
  const std::vector<std::string> stable{"--optimiser.schedule=wsd", "--optimiser.cooldown=0.25"};
  const auto train = [&](const std::string& path, const std::string& steps) {
    std::vector<std::string> options = stable;
    options.push_back(steps);
    EXPECT_EQ(run_tally(training(path, options), folder).code, 0);
  };
  train(run, "--steps=8");
  train(straight, "--steps=12");
  std::filesystem::remove(run + "/checkpoints/step-00000008.safetensors");
  std::filesystem::remove(run + "/results.json");
  const Finished resumed = run_tally({"resume", run, "--quiet", "--threads=1", "--steps=12"}, folder);
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  const std::string last = "step-00000012.safetensors";
  EXPECT_TRUE(checkpoints_of(run).at(last) == checkpoints_of(straight).at(last));
}

TEST(Schedules, ThatDoNotFitARunAreRefused) {
  const TemporaryFolder folder;
  const auto refusal = [&](std::vector<std::string> options) {
    options.emplace_back("--dry-run");
    const Finished refused = run_tally(training(folder / "run", options), folder);
    EXPECT_EQ(refused.code, 2);
    return refused.err;
  };
  std::string text = refusal({"--optimiser.schedule=wsd", "--optimiser.cooldown=0.9", "--steps=8"});
  EXPECT_TRUE(holds(text, "warmup 2 and a cooldown of 7 steps are longer than the run of 8 steps")) << text;
  text = refusal({"--optimiser.schedule=linear", "--optimiser.cooldown=0.5"});
  EXPECT_TRUE(holds(text, "cooldown = 0.5 has no effect with schedule = linear; it is for wsd and inverse-root"))
      << text;
  text = refusal({"--optimiser.schedule=inverse-root", "--optimiser.cooldown-shape=1-sqrt"});
  EXPECT_TRUE(holds(text, "cooldown-shape = 1-sqrt has no effect")) << text;
  text = refusal({"--optimiser.schedule=lineal"});
  EXPECT_TRUE(holds(text, "constant, linear, cosine, wsd, inverse-root")) << text;
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

}  // namespace schedule_test
}  // namespace tally::testing
