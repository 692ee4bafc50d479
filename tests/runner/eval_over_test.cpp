// tally eval --over: the errors of eval at every value, over seeds. Stored evaluations of tally reproduce.
#include <gtest/gtest.h>

#include "tasks/results/varied.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::eval_over_test {

class EvalOver : public Program {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_ / "runs"); }
  void train(const std::string& name, const std::string& encoding, const std::string& more = "") {
    done(tiny("runs/" + name, encoding, more));
  }
  JsonValue table(const std::string& options, int code = 0) {
    return json("eval runs " + options, code).elements("tables").at(0);
  }
};

TEST_F(EvalOver, GivesTheErrorsOfEvalOverSeeds) {
  train("cope-1", "cope");
  train("cope-2", "cope", "--seed=2");
  train("none-1", "none");
  train("none-2", "none", "--seed=2 --steps=6");
  expect_parts(done("eval runs --over task.length=8,32"),
               {"flip-flop, in-distribution, wrong tokens against task.length", "| 2    |"});

  const JsonValue found = table("--over length=8,32");
  EXPECT_FALSE(exists("runs/cope-1/varied.json"));
  ASSERT_EQ(found.elements("rows").size(), 3u);  // no run was trained for 4 and for 6 steps
  const JsonValue& cope = found.elements("rows")[0];
  EXPECT_EQ(cope.string("runs"), "2");
  std::int64_t wrong = 0, of = 0;
  for (const std::string run : {"runs/cope-1", "runs/cope-2"}) {
    const JsonValue one = json("eval " + run + " --lengths 32 --split in-distribution").elements("evaluations").at(0);
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
  train("absolute", "absolute");
  train("rope", "rope");
  const JsonValue found = table("--over task.length=8,64", 1);
  const JsonValue& absolute = found.elements("rows")[0];
  EXPECT_EQ(absolute.at("8").integer("n"), 1);
  EXPECT_EQ(absolute.at("64").integer("n"), 0);
  EXPECT_TRUE(holds(absolute.at("64").string("refused"), "[absolute]"));
  EXPECT_EQ(found.elements("rows")[1].at("64").integer("n"), 1);
  EXPECT_TRUE(holds(tally("eval runs --over task.length=8,64").out, "absolute at 64: [absolute]"));
}

TEST_F(EvalOver, RefusesWhatMeansNothing) {
  EXPECT_EQ(tally("eval runs --over task.length=8").code, 1);  // no run
  train("cope", "cope");
  refused({{"eval runs --over task.lenght=8", "has no option 'task.lenght'; did you mean 'task.length'?"},
           {"eval runs --over seed=1,2", "the task flip-flop has no option 'seed'\n"},
           {"eval runs --over task.length", "--over takes key=value,value"},
           {"eval runs --over task.length=8 --set pe.relative.far=cap", "belongs to the encoding of none of the runs"},
           {"eval runs --over task.length=8 --lengths 8", "--over excludes --lengths"},
           {"eval runs runs/cope", "several runs are evaluated with --over"}});
}

}  // namespace tally::testing::eval_over_test
