// At its end a run also scores answers that the model generates, as 'tally eval --generate' does.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace generated_test {

class Generated : public ::testing::Test {
 protected:
  Finished train(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"train",
                                   run_,
                                   "--task=selective-copy",
                                   "--pe=cope+rope",
                                   "--preset=quick",
                                   "--model.width=8",
                                   "--batch=4",
                                   "--steps=4",
                                   "--eval-every=2",
                                   "--optimiser.warmup=0",
                                   "--task.eval-count=5",
                                   "--threads=1"};
    words.insert(words.end(), more.begin(), more.end());
    return run_tally(words, folder_);
  }
  JsonValue results() const { return parse_json(read_file(run_ + "/results.json"), JsonLimits{}, "results"); }

  TemporaryFolder folder_;
  std::string run_ = folder_ / "run";
};

TEST_F(Generated, StandInTheResultsAndInTheTable) {
  const Finished finished = train();
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(holds(finished.out, "generated")) << finished.out;
  const JsonValue all = results();
  const std::vector<JsonValue>& found = all.elements("generated");
  ASSERT_EQ(found.size(), 3u);
  const Finished eval = run_tally({"eval", run_, "--generate", "--json"}, folder_);
  const JsonValue asked = parse_json(eval.out, JsonLimits{}, "eval");
  for (std::size_t n = 0; n < found.size(); ++n) {
    const JsonValue& own = found[n];
    const JsonValue& other = asked.elements("evaluations").at(n);
    EXPECT_EQ(own.string("split"), other.string("split"));
    EXPECT_TRUE(own.boolean("generated"));
    for (const char* key : {"wrong", "scored", "wrong_sequences", "sequences"}) {
      EXPECT_EQ(own.integer(key), other.integer(key)) << key;
    }
  }
  EXPECT_TRUE(holds(run_tally({"report", run_}, folder_).out, "| in-distribution, generated"));
  const Finished json = run_tally({"report", run_, "--json"}, folder_);
  const JsonValue report = parse_json(json.out, JsonLimits{}, "report");
  EXPECT_GE(report.elements("tables")[0].elements("rows")[0].at("in-distribution, generated").real("mean"), 0);
}

// A run that is killed before its results are written ends with the same results.
TEST_F(Generated, AreThereAgainAfterAKill) {
  ASSERT_EQ(train().code, 0);
  const std::string before = results_of(run_);
  const std::vector<std::string> metrics = metrics_of(run_);
  std::filesystem::remove(run_ + "/results.json");
  ASSERT_EQ(run_tally({"resume", run_, "--quiet"}, folder_).code, 0);
  EXPECT_EQ(results_of(run_), before);
  EXPECT_EQ(metrics_of(run_), metrics);
}

TEST_F(Generated, AreLeftOutOrRefused) {
  ASSERT_EQ(train({"--eval-generated=false"}).code, 0);
  EXPECT_FALSE(results().contains("generated"));
  EXPECT_FALSE(holds(run_tally({"report", run_}, folder_).out, "generated"));
  // A flip-flop sequence has many separate reads, so there is no single answer to generate. The error appears before
  // the first step.
  const Finished refused = run_tally(tiny_training(folder_ / "other", "rope", {"--eval-generated"}), folder_);
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(holds(refused.err, "does not stand in one piece")) << refused.err;
}

}  // namespace generated_test
}  // namespace tally::testing
