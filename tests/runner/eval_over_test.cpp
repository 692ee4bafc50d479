// tally eval --over: the errors of eval at every value, over seeds. Stored evaluations of tally reproduce.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/io/json.hpp"
#include "tasks/results/varied.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace eval_over_test {

class EvalOver : public ::testing::Test {
 protected:
  void train(const std::string& name, const std::string& encoding, const std::vector<std::string>& more = {}) {
    const Finished finished = run_tally(tiny_training(runs_ + "/" + name, encoding, more), folder_);
    ASSERT_EQ(finished.code, 0) << finished.err;
  }
  Finished eval(std::vector<std::string> words) {
    words.insert(words.begin(), {"eval", runs_});
    return run_tally(words, folder_);
  }
  JsonValue table(std::vector<std::string> words, int code = 0) {
    words.emplace_back("--json");
    const Finished finished = eval(words);
    EXPECT_EQ(finished.code, code) << finished.err;
    return parse_json(finished.out, JsonLimits{}, "eval").elements("tables").at(0);
  }

  TemporaryFolder folder_;
  std::string runs_ = folder_ / "runs";
};

TEST_F(EvalOver, GivesTheErrorsOfEvalOverSeeds) {
  std::filesystem::create_directory(runs_);
  train("cope-1", "cope");
  train("cope-2", "cope", {"--seed=2"});
  train("none-1", "none");
  train("none-2", "none", {"--seed=2", "--steps=6"});
  const Finished text = eval({"--over", "task.length=8,32"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(holds(text.out, "flip-flop, in-distribution, wrong tokens against task.length")) << text.out;
  EXPECT_TRUE(holds(text.out, "| 1 of 2 finished |") || holds(text.out, "| 2    |")) << text.out;

  const JsonValue found = table({"--over", "length=8,32"});
  EXPECT_FALSE(std::filesystem::exists(runs_ + "/cope-1/varied.json"));
  ASSERT_EQ(found.elements("rows").size(), 3u);  // no run was trained for 4 and for 6 steps
  const JsonValue& cope = found.elements("rows")[0];
  EXPECT_EQ(cope.string("runs"), "2");
  std::int64_t wrong = 0, of = 0;
  for (const std::string run : {"/cope-1", "/cope-2"}) {
    const Finished single =
        run_tally({"eval", runs_ + run, "--lengths", "32", "--split", "in-distribution", "--json"}, folder_);
    const JsonValue one = parse_json(single.out, JsonLimits{}, "eval").elements("evaluations").at(0);
    wrong += one.integer("wrong"), of += one.integer("scored");
  }
  EXPECT_EQ(cope.at("32").integer("wrong"), wrong);
  EXPECT_EQ(cope.at("32").integer("of"), of);
  EXPECT_EQ(cope.at("32").integer("n"), 2);
}

// Both processes read the file before either writes.
TEST(StoredEvaluations, TwoWritersLoseNothing) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  std::filesystem::create_directory(run);
  write_file(run + "/config.json", "{}");
  VariedFile one(run), other(run);
  const auto key = [](const char* value) { return VariedKey{4, "task.length", value, "test"}; };
  const auto found = [](std::int64_t wrong) {
    Evaluation e;
    e.split = "test";
    e.wrong = wrong, e.scored = 9, e.sequences = 7;
    return e;
  };
  one.add(key("8"), found(1));
  other.add(key("16"), found(2));
  one.add(key("16"), found(3));  // the first result is kept
  one.add(key("32"), found(4));
  const VariedFile all(run);
  for (const auto& [value, wrong] : {std::pair("8", 1), std::pair("16", 2), std::pair("32", 4)}) {
    const Evaluation* e = all.find(key(value));
    ASSERT_NE(e, nullptr) << value;
    EXPECT_EQ(e->wrong, wrong) << value;
  }
  EXPECT_EQ(parse_json(read_file(run + "/varied.json"), JsonLimits{}, "varied").elements("results").size(), 3u);
}

TEST_F(EvalOver, SaysWhatAnEncodingCannotTake) {
  std::filesystem::create_directory(runs_);
  train("absolute", "absolute");
  train("rope", "rope");
  const JsonValue found = table({"--over", "task.length=8,64"}, 1);
  const JsonValue& absolute = found.elements("rows")[0];
  EXPECT_EQ(absolute.at("8").integer("n"), 1);
  EXPECT_EQ(absolute.at("64").integer("n"), 0);
  EXPECT_TRUE(holds(absolute.at("64").string("refused"), "[absolute]"));
  EXPECT_EQ(found.elements("rows")[1].at("64").integer("n"), 1);
  EXPECT_TRUE(holds(eval({"--over", "task.length=8,64"}).out, "absolute at 64: [absolute]"));
}

TEST_F(EvalOver, RefusesWhatMeansNothing) {
  std::filesystem::create_directory(runs_);
  EXPECT_EQ(eval({"--over", "task.length=8"}).code, 1);  // no run
  train("cope", "cope");
  const auto refused = [&](const std::vector<std::string>& words, const std::string& why) {
    const Finished finished = eval(words);
    EXPECT_EQ(finished.code, 2) << finished.err;
    EXPECT_TRUE(holds(finished.err, why)) << finished.err;
  };
  refused({"--over", "task.lenght=8"}, "has no option 'task.lenght'; did you mean 'task.length'?");
  refused({"--over", "seed=1,2"}, "the task flip-flop has no option 'seed'\n");
  refused({"--over", "p-ignor=0.1"}, "did you mean 'task.p-ignore'?");
  refused({"--over", "model.width=8"}, "has no option 'model.width'");
  refused({"--over", "task.length=7"}, "even");
  refused({"--over", "task.p-ignore=2"}, "p-ignore");
  refused({"--over", "task.length"}, "--over takes key=value,value");
  refused({"--over", "task.length=8", "--over", "task.p-ignore=0.5"}, "one option is varied");
  refused({"--over", "task.length=8", "--split", "other"}, "other");
  refused({"--over", "task.length=8", "--count", "7"}, "6");
  refused({"--over", "task.length=8", "--split", "train"}, "endless");
  refused({"--over", "task.length=8", "--set", "pe.relative.far=cap"}, "belongs to the encoding of none of the runs");
  refused({"--over", "task.length=8", "--lengths", "8"}, "--over excludes --lengths");
  refused({runs_ + "/cope"}, "several runs are evaluated with --over");
}

}  // namespace eval_over_test
}  // namespace tally::testing
