// Numbers that overflow a double: a text with one long word per document, such as DNA.
#include <cmath>

#include "tests/runner/json_output.hpp"
#include "tests/runner/text_runs.hpp"

namespace tally::testing {
namespace overflow_test {

// Words of 3,000 letters at ln 257 nats each: a perplexity of 10^7000.
class LongWords : public TextRuns {
 protected:
  void SetUp() override {
    std::uint32_t state = 1;
    for (int n = 0; n < 8; ++n) {
      std::string text;
      for (int letter = 0; letter < 3000; ++letter) text += "ACGT"[(state = state * 1664525 + 1013904223) >> 30];
      fs::create_directories(folder_ / "texts");
      write_file(folder_ / formatted("texts/{}.txt", n), text);
    }
    const Finished made = prepare("data", {"--vocabulary=257", "--validation-part=0.4", "--test-part=0"});
    ASSERT_EQ(made.code, 0) << made.err;
  }
};

TEST_F(LongWords, ArePrintedAndStoredByTheirLogarithms) {
  const std::string run = folder_ / "run";
  const Finished trained = run_tally(training("run", {"--json"}), folder_);
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_TRUE(holds(trained.err, "; word perplexity e^")) << trained.err;
  const JsonValue evaluation = parse_json(read_file(run + "/results.json"), {}, "results").elements("evaluations")[0];
  const JsonValue& text = evaluation.at("text");
  EXPECT_TRUE(text.at("word_perplexity").is_null());
  EXPECT_NEAR(text.real("nats_per_word"), evaluation.real("loss") * text.real("tokens") / text.real("words"), 1e-6);
  EXPECT_GT(text.real("nats_per_word"), 710);
  EXPECT_TRUE(holds(read_file(run + "/metrics.jsonl"), "\"word_perplexity\":null"));
  EXPECT_TRUE(holds(run_tally({"resume", run, "--quiet"}, folder_).out, "nothing to do"));
  EXPECT_EQ(run_tally({"resume", run, "--steps=14", "--quiet"}, folder_).code, 0);  // which reads the metrics
  EXPECT_EQ(json_of({"eval", run, "--split=validation"}, folder_).elements("evaluations").size(), 1u);
  EXPECT_TRUE(holds(run_tally({"report", run}, folder_).out, "| e^"));
  const Finished varied = run_tally({"eval", run, "--over=length=8,16", "--split=validation", "--json"}, folder_);
  EXPECT_EQ(varied.code, 0) << varied.err;
}

}  // namespace overflow_test
}  // namespace tally::testing
