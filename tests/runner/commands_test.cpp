// Commands that read a run: eval, also over values of an option, convert, answers that are generated. Pages with tables
// of the program: encodings, results.
#include <gtest/gtest.h>

#include "nn/encoding/encoding.hpp"
#include "tasks/command_line/config_options.hpp"
#include "tasks/results/varied.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::commands_test {

TEST(Repository, EncodingsAreThoseOfTheTable) {
  std::string table = "| name | what it does | options | source |\n|---|---|---|---|\n";
  const auto cell = [](const std::string& text) { return joined(split_text(text, '|'), "\\|"); };
  for (const EncodingEntry* entry : encoding_registry()) {
    std::string options;
    for (const OptionInfo& option : list_options(*entry->make_options()))
      options += formatted("{}`{}`", options.empty() ? "" : " ", option.name);
    table += formatted("| `{}` | {} | {} | {} |\n", entry->name, cell(entry->summary), options, cell(entry->paper));
  }
  EXPECT_NE(read_file(TALLY_SOURCE_DIR "/nn/position/encodings.md").find("\n\n" + table + "\n"), std::string::npos)
      << "nn/position/encodings.md must have this table:\n"
      << table;
}

// The cells of a row of a Markdown table.
std::vector<std::string> cells_of(const std::string& page, const std::string& row) {
  std::vector<std::string> cells;
  const std::size_t begin = page.find("\n| " + row);
  if (begin == std::string::npos) return cells;
  std::istringstream line(page.substr(begin + 2, page.find('\n', begin + 1) - begin - 2));
  for (std::string cell; std::getline(line, cell, '|');) {
    cell.erase(0, cell.find_first_not_of(' '));
    cell.erase(cell.find_last_not_of(' ') + 1);
    cells.push_back(cell);
  }
  return cells;
}

// README shows the means of the demo's table, without deviations.
TEST(Results, ReadmeHasThoseOfTheDemo) {
  const std::string from = TALLY_SOURCE_DIR, results = read_file(from + "/tests/results/demo/table.md"),
                    readme = read_file(from + "/README.md");
  for (const char* encoding : {"absolute", "alibi", "rope", "cope"}) {
    SCOPED_TRACE(encoding);
    const std::vector<std::string> measured = cells_of(results, encoding), shown = cells_of(readme, encoding);
    ASSERT_TRUE(shown.size() == 4 && measured.size() >= 4);
    for (std::size_t n = 1; n < shown.size(); ++n) {
      EXPECT_EQ(shown[n], measured[n].substr(0, measured[n].find(' '))) << n;
    }
  }
}

class OnARun : public Program {
 protected:
  void SetUp() override { done(tiny("run", "cope", "--steps=6")); }
};

using Eval = OnARun;
using Convert = OnARun;

class OtherTasks : public Program {
 protected:
  static constexpr const char* tiny_model = " --quiet --batch=2 --model.width=8 --model.layers=1 --threads=1 ";
};

TEST_F(Eval, GivesTheLastEvaluationOfTheRun) {
  const JsonValue result = json("eval run"), results = file_json("run/results.json");
  ASSERT_EQ(result.elements("evaluations").size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    JsonValue line = result.elements("evaluations")[i];
    EXPECT_EQ(line.integer("length"), 16);
    line.remove("length");
    EXPECT_TRUE(line == results.elements("evaluations")[i]) << write_json(line);
  }
  refused("eval run --by", "the task flip-flop breaks its errors down by nothing");
  expect_parts(done("eval run"), {"step 6", " of 11 tokens, 95% interval "});
}

TEST_F(Eval, TakesSplitsCountsLengthsAndCheckpoints) {
  const JsonValue one = json("eval run --split=train --count=3");
  ASSERT_EQ(one.elements("evaluations").size(), 1U);
  EXPECT_EQ(one.elements("evaluations")[0].integer("sequences"), 3);
  const JsonValue::Array longer = json("eval run --split=ood-dense --lengths=16,64,200").elements("evaluations");
  ASSERT_EQ(longer.size(), 3U);
  EXPECT_EQ(longer[2].integer("length"), 200);
  EXPECT_GT(longer[2].integer("scored"), longer[0].integer("scored"));
  EXPECT_EQ(json("eval run --checkpoint=4").integer("step"), 4);
  done("eval run --checkpoint=best");
}

TEST_F(Eval, RefusesWhatItCannotDo) {
  for (const auto& [option, message] :
       std::vector<Refusal>{{"--split=oodsparse", "ood-sparse"},
                            {"--lengths=7", "even"},
                            {"--count=5", "ood-dense has 4 sequences, asked for 5"},
                            {"--checkpoint=abc", "'abc' is neither newest, best nor a step"}}) {
    const Finished result = tally("eval run " + option);
    EXPECT_EQ(result.code, 2) << option;
    EXPECT_LT(result.err.size(), 200U) << result.err;
    EXPECT_TRUE(holds(result.err, message)) << result.err;
    EXPECT_FALSE(holds(result.out, "wrong")) << "nothing is evaluated before: " << result.out;
  }
  refused("eval run --checkpoint=5", "step 5", 1);
}

// A table of positions ends at the training length: longer ones fail with a message, the others are evaluated.
TEST_F(Eval, NamesTheLimitOfAnEncoding) {
  done(tiny("absolute", "absolute"));
  const Finished result = tally("eval absolute --lengths=8,32 --split=ood-dense");
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(holds(result.out, "length 8  ood-dense: ")) << result.out;
  EXPECT_TRUE(holds(result.err, "length 32") && holds(result.err, "16 positions")) << result.err;
}

TEST_F(OtherTasks, BreakErrorsDownByTheirKey) {
  done(
      "train run --task=parity --pe=none --preset=quick --steps=60 --task.max-length=3 --width=16 --layers=1"
      " --task.eval-count=50 --eval-every=30");
  const JsonValue by = file_json("run/results.json").elements("evaluations").at(1).at("by");
  EXPECT_EQ(by.at("keys").integers(), (std::vector<std::int64_t>{4, 5, 6, 7}));
  EXPECT_EQ(json("eval run --split=ood-long").elements("evaluations").at(0).at("by"), by);
  expect_parts(done("eval run --by --split=ood-long"), {"| length | tokens wrong | 95% interval |", "\n| mean   |"});
}

// At its end a run also scores answers that the model generates, as 'tally eval --generate' does.
TEST_F(OtherTasks, HaveTheirAnswersGenerated) {
  const std::string training =
      std::string(
          "train run --task=selective-copy --pe=cope+rope --preset=quick --steps=4 --eval-every=2"
          " --optimiser.warmup=0 --task.eval-count=5") +
      tiny_model;
  done(training);
  const JsonValue::Array own = file_json("run/results.json").elements("generated"),
                         asked = json("eval run --generate").elements("evaluations");
  ASSERT_EQ(own.size(), 3u);
  for (std::size_t n = 0; n < own.size(); ++n) {
    EXPECT_EQ(own[n].string("split"), asked[n].string("split"));
    EXPECT_TRUE(own[n].boolean("generated"));
    EXPECT_FALSE(asked[n].contains("loss"));
    for (const char* key : {"wrong", "scored", "wrong_sequences", "sequences"}) {
      EXPECT_EQ(own[n].integer(key), asked[n].integer(key)) << key;
    }
  }
  EXPECT_EQ(own[0].integer("scored"), 5 * 16);
  expect_parts(done("eval run --generate"), {"sequences, 95% interval"});
  expect_parts(done("report run"), {"| in-distribution, generated"});
  // A run that is killed before its results are written ends with the same results.
  const std::string before = results_of(folder_ / "run");
  std::filesystem::remove(folder_ / "run/results.json");
  done("resume run --quiet");
  EXPECT_EQ(results_of(folder_ / "run"), before);

  done(training + "--force --eval-generated=false");
  EXPECT_FALSE(file_json("run/results.json").contains("generated"));
  // A flip-flop sequence has many separate reads, so there is no single answer to generate. The error appears before
  // the first step.
  refused(tiny("other", "rope", "--eval-generated"), "does not stand in one piece");
}

TEST_F(Convert, WritesTheWeightsAlone) {
  done("convert run weights.safetensors");
  const SafetensorsFile weights = SafetensorsFile::open(folder_ / "weights.safetensors");
  const SafetensorsFile checkpoint = SafetensorsFile::open(folder_ / "run/checkpoints/step-00000006.safetensors");
  EXPECT_TRUE(verify_checksums(weights).empty());
  std::size_t model_tensors = 0;
  for (const SafetensorsEntry& entry : checkpoint.entries()) {
    if (!entry.name.starts_with("model.")) continue;
    ++model_tensors;
    const SafetensorsEntry* exported = weights.find(entry.name);
    ASSERT_NE(exported, nullptr) << entry.name;
    EXPECT_EQ(weights.checksum(*exported), checkpoint.checksum(entry));
  }
  EXPECT_EQ(weights.entries().size(), model_tensors);
  EXPECT_TRUE(parse_json(weights.metadata().at("config"), {}, "config") == file_json("run/config.json"));
  refused("convert run", "");
  refused("convert run no/such/folder.safetensors", "no/such/folder", 1);
}

TEST_F(OtherTasks, InfoNamesWhatComputes) {
  const JsonValue info = json("info --threads=2");
  EXPECT_EQ(info.integer("threads"), 2);
  for (const char* key : {"version", "device", "processor", "bf16_products", "compiler", "blas", "blas_kernels"}) {
    EXPECT_FALSE(info.string(key).empty()) << key;
  }
  const Finished none = shell("TALLY_BLAS=/missing '" TALLY_RUNNER "' info");
  EXPECT_EQ(none.code, 1);
  EXPECT_TRUE(holds(none.out, "compiler") && holds(none.err, "no OpenBLAS")) << none.err;
}

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

}  // namespace tally::testing::commands_test
