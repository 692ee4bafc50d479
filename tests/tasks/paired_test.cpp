// Two language models on the same tokens: the difference of their losses, and its significance.
#include "tasks/results/report.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tally::paired_test {

RunSummary run_with(const std::vector<double>& nats) {
  RunSummary run;
  run.path = "run";
  run.config = RunConfig::make("flip-flop", "none");
  run.state = RunState::finished;
  Evaluation& e = run.results.emplace_back();
  e.split = "validation";
  e.blocks = {nats, std::vector<std::int64_t>(nats.size(), 10)};
  e.loss = e.blocks.mean();
  TextCounts counts;
  counts.tokens = 10 * static_cast<std::int64_t>(nats.size());
  e.text = counts;
  return run;
}

// Differences 1 - spread and 1 + spread of two parts of ten tokens: the mean is 0.1, its error spread/10.
JsonValue row(double spread) {
  return paired(run_with({21 - spread, 21 + spread}), run_with({20, 20})).rows_json().elements().at(0);
}

TEST(Paired, TwoLossesDifferByStudentsTest) {
  EXPECT_NEAR(row(0.078).real("difference"), 0.1, 1e-12);
  EXPECT_NEAR(row(0.078).real("error"), 0.0078, 1e-12);
  // With two parts, the difference must be 12.7 standard errors.
  EXPECT_TRUE(row(0.078).boolean("differs"));
  EXPECT_FALSE(row(0.08).boolean("differs"));
}

}  // namespace tally::paired_test
