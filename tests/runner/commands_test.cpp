// Commands that read a run: eval, convert. Pages with tables of the program: encodings, results.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "core/io/safetensors.hpp"
#include "nn/encoding/encoding.hpp"
#include "tasks/command_line/config_options.hpp"
#include "tests/runner/json_output.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace commands_test {

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

// Compares our numbers in the first table of table2.md, without its marks.
TEST(Results, ReadmeHasThoseOfTable2) {
  const std::string from = TALLY_SOURCE_DIR, results = read_file(from + "/tests/results/table2.md"),
                    readme = read_file(from + "/README.md");
  ASSERT_NE(readme.find("\n## Results\n"), std::string::npos);
  for (const char* encoding : {"absolute", "rope", "cope"}) {
    SCOPED_TRACE(encoding);
    const std::vector<std::string> measured = cells_of(results, encoding),
                                   shown = cells_of(readme.substr(readme.find("\n## Results\n")), encoding);
    ASSERT_TRUE(shown.size() == 6 && measured.size() > 11) << "flip-flop twice, selective copy three times";
    for (std::size_t n = 1; n < shown.size(); ++n) {
      std::string cell = measured[2 * n - 1];  // followed by the paper's
      std::erase(cell, '*');
      EXPECT_EQ(shown[n], cell) << n;
    }
  }
}

class OnARun : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(run_tally(tiny_training(run(), "cope", {"--steps=6"}), folder_).code, 0); }
  std::string run() const { return folder_ / "run"; }
  TemporaryFolder folder_;
};

using Eval = OnARun;
using Convert = OnARun;

TEST_F(Eval, GivesTheLastEvaluationOfTheRun) {
  const JsonValue result = json_of(run_tally({"eval", run(), "--json"}, folder_));
  const JsonValue results = parse_json(read_file(run() + "/results.json"), {}, "results");
  ASSERT_EQ(result.elements("evaluations").size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    JsonValue line = result.elements("evaluations")[i];
    EXPECT_EQ(line.integer("length"), 16);
    line.remove("length");
    EXPECT_TRUE(line == results.elements("evaluations")[i]) << write_json(line);
  }
  const Finished by = run_tally({"eval", run(), "--by"}, folder_);
  EXPECT_EQ(by.code, 2);
  EXPECT_TRUE(holds(by.err, "the task flip-flop breaks its errors down by nothing")) << by.err;
  const Finished text = run_tally({"eval", run()}, folder_);
  EXPECT_TRUE(holds(text.out, "step 6") && holds(text.out, " of 11 tokens, 95% interval ")) << text.out;
}

TEST(EvalBy, ErrorsByWhatTheTaskBreaksThemDownBy) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  EXPECT_EQ(run_tally({"train", run, "--task=parity", "--pe=none", "--preset=quick", "--steps=60",
                       "--task.max-length=3", "--width=16", "--layers=1", "--task.eval-count=50", "--eval-every=30"},
                      folder)
                .code,
            0);
  const JsonValue results = parse_json(read_file(run + "/results.json"), {}, "results");
  const JsonValue by = results.elements("evaluations").at(1).at("by");
  EXPECT_EQ(by.string("name"), "length");
  EXPECT_EQ(by.at("keys").integers(), (std::vector<std::int64_t>{4, 5, 6, 7}));
  const JsonValue again = json_of(run_tally({"eval", run, "--json", "--split=ood-long"}, folder));
  EXPECT_EQ(again.elements("evaluations").at(0).at("by"), by);
  const Finished table = run_tally({"eval", run, "--by", "--split=ood-long"}, folder);
  EXPECT_TRUE(holds(table.out, "| length | tokens wrong | 95% interval |") && holds(table.out, "\n| mean   |"))
      << table.out;
}

TEST_F(Eval, TakesSplitsCountsLengthsAndCheckpoints) {
  const JsonValue one = json_of(run_tally({"eval", run(), "--json", "--split=train", "--count=3"}, folder_));
  ASSERT_EQ(one.elements("evaluations").size(), 1U);
  EXPECT_EQ(one.elements("evaluations")[0].integer("sequences"), 3);

  const JsonValue longer =
      json_of(run_tally({"eval", run(), "--json", "--split=ood-dense", "--lengths=16,64,200"}, folder_));
  ASSERT_EQ(longer.elements("evaluations").size(), 3U);
  EXPECT_EQ(longer.elements("evaluations")[2].integer("length"), 200);
  EXPECT_GT(longer.elements("evaluations")[2].integer("scored"), longer.elements("evaluations")[0].integer("scored"));

  EXPECT_EQ(json_of(run_tally({"eval", run(), "--json", "--checkpoint=4"}, folder_)).integer("step"), 4);
  EXPECT_EQ(run_tally({"eval", run(), "--checkpoint=best"}, folder_).code, 0);
}

TEST_F(Eval, RefusesWhatItCannotDo) {
  for (const auto& [option, message] : {std::pair{"--split=oodsparse", "ood-sparse"},
                                        {"--split=train", "endless"},
                                        {"--lengths=7", "even"},
                                        {"--lengths=0", "--lengths: Value 0 not in range"},
                                        {"--count=-1", "--count: Value -1 not in range"},
                                        {"--count=5", "ood-dense has 4 sequences, asked for 5"},
                                        {"--count=100000", "in-distribution has 6 sequences, asked for 100000"},
                                        {"--checkpoint=abc", "'abc' is neither newest, best nor a step"}}) {
    const Finished result = run_tally({"eval", run(), option}, folder_);
    EXPECT_EQ(result.code, 2) << option;
    EXPECT_LT(result.err.size(), 200U) << result.err;
    EXPECT_TRUE(holds(result.err, message)) << result.err;
    EXPECT_FALSE(holds(result.out, "wrong")) << "nothing is evaluated before: " << result.out;
  }
  EXPECT_EQ(run_tally({"eval", run(), "--checkpoint=5"}, folder_).code, 1);
  const std::string squares = folder_ / "squares";
  ASSERT_EQ(run_tally(tiny_training(squares, "none", {"--model.attention=composed"}), folder_).code, 0);
  const Finished huge = run_tally({"eval", squares, "--lengths=1000000"}, folder_);
  EXPECT_EQ(huge.code, 1);
  EXPECT_TRUE(holds(huge.err, "this needs about")) << huge.err;
}

TEST_F(Eval, OfAnswersThatAreGenerated) {
  const std::vector<std::string> training{
      "train",         folder_ / "copy",  "--task=selective-copy", "--pe=cope",
      "--quiet",       "--preset=quick",  "--optimiser.warmup=0",  "--steps=2",
      "--batch=2",     "--model.width=8", "--model.layers=1",      "--task.eval-count=5",
      "--eval-count=0"};
  ASSERT_EQ(run_tally(training, folder_).code, 0);
  const JsonValue json = json_of(run_tally({"eval", folder_ / "copy", "--generate", "--json"}, folder_));
  ASSERT_EQ(json.elements("evaluations").size(), 3U);
  const JsonValue& line = json.elements("evaluations")[0];
  EXPECT_TRUE(line.at("generated").boolean());
  EXPECT_FALSE(line.contains("loss"));
  EXPECT_EQ(line.integer("scored"), 5 * 16);
  EXPECT_TRUE(holds(run_tally({"eval", folder_ / "copy", "--generate"}, folder_).out, "sequences, 95% interval"));
  const Finished refused = run_tally({"eval", run(), "--generate"}, folder_);
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(holds(refused.err, "does not stand in one piece")) << refused.err;
}

// A table of positions ends at the training length: longer ones fail with a message, the others are evaluated.
TEST_F(Eval, NamesTheLimitOfAnEncoding) {
  ASSERT_EQ(run_tally(tiny_training(folder_ / "absolute", "absolute"), folder_).code, 0);
  const Finished result = run_tally({"eval", folder_ / "absolute", "--lengths=8,32", "--split=ood-dense"}, folder_);
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(holds(result.out, "length 8  ood-dense: ")) << result.out;
  EXPECT_TRUE(holds(result.err, "length 32") && holds(result.err, "16 positions")) << result.err;
}

TEST_F(Eval, TasksWithoutALengthHaveNoLengths) {
  const std::vector<std::string> counting{"train",
                                          folder_ / "counting",
                                          "--task=counting",
                                          "--pe=none",
                                          "--quiet",
                                          "--steps=1",
                                          "--batch=2",
                                          "--model.width=8",
                                          "--model.layers=1",
                                          "--task.max-operations=5",
                                          "--task.eval-count=2",
                                          "--task.max-tokens=32"};
  ASSERT_EQ(run_tally(counting, folder_).code, 0);
  EXPECT_EQ(run_tally({"eval", folder_ / "counting"}, folder_).code, 0);
  const Finished result = run_tally({"eval", folder_ / "counting", "--lengths=8"}, folder_);
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(holds(result.err, "no option 'length'")) << result.err;
}

TEST_F(Convert, WritesTheWeightsAlone) {
  const std::string out = folder_ / "weights.safetensors";
  ASSERT_EQ(run_tally({"convert", run(), out}, folder_).code, 0);
  const SafetensorsFile weights = SafetensorsFile::open(out);
  const SafetensorsFile checkpoint = SafetensorsFile::open(run() + "/checkpoints/step-00000006.safetensors");
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
  EXPECT_TRUE(parse_json(weights.metadata().at("config"), {}, "config") ==
              parse_json(read_file(run() + "/config.json"), {}, "config.json"));
  EXPECT_EQ(run_tally({"convert", run()}, folder_).code, 2);
  EXPECT_EQ(run_tally({"convert", run(), folder_ / "no/such/folder.safetensors"}, folder_).code, 1);
}

TEST(Info, NamesWhatComputes) {
  const TemporaryFolder folder;
  const JsonValue info = json_of(run_tally({"info", "--json", "--threads=2"}, folder));
  EXPECT_EQ(info.integer("threads"), 2);
  for (const char* key : {"version", "device", "processor", "bf16_products", "compiler", "blas", "blas_kernels"}) {
    EXPECT_FALSE(info.string(key).empty()) << key;
  }
  const Finished none = run_program({"/usr/bin/env", "TALLY_BLAS=/missing", TALLY_RUNNER, "info"}, folder);
  EXPECT_EQ(none.code, 1);
  EXPECT_TRUE(holds(none.out, "compiler") && holds(none.err, "no OpenBLAS")) << none.err;
}

}  // namespace commands_test
}  // namespace tally::testing
