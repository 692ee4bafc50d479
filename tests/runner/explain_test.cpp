// tally explain: its output and refused options. tests/tasks tests the measurements.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace explain_test {

class ExplainCommand : public ::testing::Test {
 protected:
  Finished explain(const std::string& encoding, std::vector<std::string> options = {}) {
    const std::string run = folder_ / encoding;
    if (!std::filesystem::exists(run)) {
      EXPECT_EQ(run_tally(tiny_training(run, encoding), folder_).code, 0);
    }
    options.insert(options.begin(), {"explain", run, "--count=4", "--threads=1"});
    return run_tally(options, folder_);
  }
  JsonValue json(const std::string& encoding, std::vector<std::string> options = {}) {
    options.insert(options.end(), {"--json", "--split=ood-dense"});
    const Finished told = explain(encoding, options);
    EXPECT_EQ(told.code, 0) << told.err;
    return parse_json(told.out, {.max_depth = 16, .max_values = 100'000}, "explain");
  }

  TemporaryFolder folder_;
};

TEST_F(ExplainCommand, TellsOfEveryHead) {
  const JsonValue told = json("cope");
  EXPECT_EQ(told.string("split"), "ood-dense");
  EXPECT_EQ(told.integer("sequences"), 4);
  const JsonValue &scored = told.at("tables").at("scored"), &all = told.at("tables").at("all");
  ASSERT_EQ(scored.elements().size(), 2u);  // gates and attention
  EXPECT_TRUE(scored.elements()[0].string("title").starts_with("gates: "));
  for (std::size_t head = 0; head < 4; ++head) {  // two layers of two heads
    const auto row = [&](const JsonValue& tables, std::size_t n) {
      return tables.elements()[n].elements("rows").at(head);
    };
    // Every query sees the first token, a write, so the 4 x 16 queries have at least that many pairs.
    EXPECT_GE(row(all, 0).at("w").integer("n"), 64);
    EXPECT_EQ(row(all, 1).at("w").integer("n"), 64);
    const JsonValue attention = row(scored, 1);
    EXPECT_EQ(attention.at("source_attention").integer("n"), told.integer("scored"));
    double sum = 0;  // the attention of a query over all roles sums to 1
    for (const JsonMember& member : attention.members()) {
      if (member.value.is_object() && !member.name.starts_with("source")) sum += member.value.real("mean");
    }
    EXPECT_NEAR(sum, 1, 1e-5);
  }
  EXPECT_EQ(json("none").at("tables").elements("scored").size(), 1u);
}

TEST_F(ExplainCommand, PrintsTables) {
  const Finished told = explain("cope");
  ASSERT_EQ(told.code, 0) << told.err;
  for (const char* part : {"in-distribution: 4 sequences, wrong ", "gates: g_ij", "over scored queries", "| bit of w",
                           "| layer 1 head 1 |", "the answer's token", "its position"}) {
    EXPECT_TRUE(holds(told.out, part)) << part << "\n" << told.out;
  }
  EXPECT_TRUE(holds(explain("cope", {"--queries=all"}).out, "over all queries"));
  const Finished fox = explain("fox");
  EXPECT_TRUE(holds(fox.out, "forgets: 1 - f_j")) << fox.out << fox.err;
  EXPECT_FALSE(holds(fox.out, "its position"));
  EXPECT_TRUE(holds(explain("stick-breaking").out, "breaks: the share"));
}

// The default of 100 is more than the split has.
TEST_F(ExplainCommand, TakesAllSequencesWhereThereAreFew) {
  ASSERT_EQ(explain("cope").code, 0);
  const Finished told = run_tally({"explain", folder_ / "cope", "--start=1", "--threads=1"}, folder_);
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_TRUE(holds(told.out, "in-distribution: 5 sequences, wrong ")) << told.out;
}

TEST_F(ExplainCommand, RefusesWhatIsNotThere) {
  EXPECT_EQ(explain("none", {"--split=ood-spars"}).code, 2);
  EXPECT_EQ(explain("none", {"--start=3"}).code, 2);  // in-distribution has 6 sequences
  EXPECT_EQ(explain("none", {"--queries=some"}).code, 2);
  EXPECT_EQ(explain("none", {"--checkpoint=3"}).code, 1);
  EXPECT_EQ(run_tally({"explain", folder_ / "nothing"}, folder_).code, 1);
  const std::string lstm = folder_ / "lstm";
  const Finished trained =
      run_tally({"train", lstm, "--task=flip-flop", "--model.kind=lstm", "--preset=quick", "--length=16",
                 "--model.width=8", "--steps=2", "--batch=2", "--optimiser.warmup=0", "--task.eval-count=2",
                 "--task.sparse-count=2", "--task.dense-count=2", "--threads=1", "--quiet"},
                folder_);
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_TRUE(holds(run_tally({"explain", lstm}, folder_).err, "which has no heads"));
}

}  // namespace explain_test
}  // namespace tally::testing
