// Commands that read a run: eval, convert, answers that are generated. Pages with tables of the program: encodings,
// results.
#include <gtest/gtest.h>

#include "nn/encoding/encoding.hpp"
#include "tasks/command_line/config_options.hpp"
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

}  // namespace tally::testing::commands_test
