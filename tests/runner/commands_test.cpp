// Commands that only read: list, describe, eval, export, show, info.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <sstream>
#include <string>

#include "core/cpu/parallel.hpp"
#include "core/io/npy.hpp"
#include "core/io/safetensors.hpp"
#include "core/tensor.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/optimizer.hpp"
#include "tasks/data/task.hpp"
#include "tasks/runs/preset.hpp"
#include "tests/runner/json_output.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace commands_test {

// The encodings in README.md match the program's list.
TEST(Repository, ReadmeHasTheEncodingsAsListed) {
  const TemporaryFolder folder;
  const Finished listed = run_tally({"list", "encodings", "--markdown"}, folder);
  ASSERT_EQ(listed.code, 0) << listed.err;
  const std::string page = read_file(TALLY_SOURCE_DIR "/nn/position/encodings.md");
  EXPECT_NE(page.find("\n\n" + listed.out + "\n"), std::string::npos)
      << "the table in nn/position/encodings.md is not what 'tally list encodings --markdown' prints:\n"
      << listed.out;
  EXPECT_EQ(run_tally({"list", "--markdown", "--json"}, folder).code, 2);
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

TEST(List, HasAllThatIsRegistered) {
  const TemporaryFolder folder;
  const Finished all = run_tally({"list"}, folder);
  EXPECT_EQ(all.code, 0);
  for (const TaskEntry* entry : task_registry()) EXPECT_TRUE(holds(all.out, entry->summary)) << entry->name;
  for (const EncodingEntry* entry : encoding_registry()) EXPECT_TRUE(holds(all.out, entry->summary)) << entry->name;
  for (const OptimizerEntry* entry : optimizer_registry()) EXPECT_TRUE(holds(all.out, entry->summary)) << entry->name;
  for (const PresetEntry& entry : preset_registry()) EXPECT_TRUE(holds(all.out, entry.summary)) << entry.name;
  const JsonValue tasks = json_of(run_tally({"list", "tasks", "--json"}, folder));
  EXPECT_EQ(tasks.members().size(), 1U);
  EXPECT_EQ(tasks.elements("tasks").size(), task_registry().size());
}

TEST(List, StartsWithinFiftyMilliseconds) {
  const TemporaryFolder folder;
  double best = 1e9;
  for (int i = 0; i < 10; ++i) {  // the fastest of a few, because the machine may have other work
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(run_tally({"list"}, folder).code, 0);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
#if defined(NDEBUG) && !defined(TALLY_SANITIZED)
  EXPECT_LT(best, 0.05);
#else
  EXPECT_LT(best, 0.5);
#endif
}

TEST(Describe, Optimisers) {
  const TemporaryFolder folder;
  const Finished adamw = run_tally({"describe", "adamw"}, folder);
  for (const char* part : {"optimiser adamw: adam with decoupled weight decay", "--optimiser.beta2 (default 0.999"}) {
    EXPECT_TRUE(holds(adamw.out, part)) << part << "\n" << adamw.out;
  }
}

TEST(Describe, EncodingTaskAndPreset) {
  const TemporaryFolder folder;
  const Finished cope = run_tally({"describe", "cope"}, folder);
  EXPECT_EQ(cope.code, 0);
  for (const char* part : {"p_ij = sum", "--pe.p-max (default 64; 1 to", "none|sqrt-d", "2405.18719",
                           "model.blocks.N.position.cope.table [65, d]", "model.position.cope.table [65, d]",
                           "model.blocks.N.position.cope.gate.weight [D, D]", "[H, 65, d]"}) {
    EXPECT_TRUE(holds(cope.out, part)) << part << "\n" << cope.out;
  }
  EXPECT_TRUE(holds(run_tally({"describe", "absolute"}, folder).out, "model.position.absolute.table [T_max, D]"));
  const Finished task = run_tally({"describe", "flip-flop"}, folder);
  for (const char* part :
       {"--task.length (default 512", "ood-sparse", "100,000 sequences", "endless", "paper", "quick"}) {
    EXPECT_TRUE(holds(task.out, part)) << part << "\n" << task.out;
  }
  const Finished preset = run_tally({"describe", "quick"}, folder);
  for (const char* part : {"of task counting", "of task flip-flop", "of task selective-copy", "--optimiser.lr"}) {
    EXPECT_TRUE(holds(preset.out, part)) << part << "\n" << preset.out;
  }
  // One preset with its own source, one with the source of its base.
  for (const auto& [name, source] : {std::pair{"flip-flop paper", "CoPE paper (arXiv 2405.18719), section 5.1"},
                                     {"parity paper", "2023 (arXiv 2207.02098): 5 layers"}}) {
    const std::string out = run_tally({"describe", name}, folder).out;
    EXPECT_TRUE(holds(out, "\nSource\n  ") && holds(out, source) && holds(out, "\nNote\n  ")) << out;
  }
}

TEST(Describe, HasAllOfItAsAValue) {
  const TemporaryFolder folder;
  const auto found = [&](const std::vector<std::string>& words) {
    const JsonValue value = parse_json(run_tally(words, folder).out, {}, words[1]);
    EXPECT_EQ(value.string("name"), words[1]);
    return value.elements("found");
  };
  const JsonValue cope = found({"describe", "cope", "--json"}).at(0);
  const JsonValue& p_max = cope.elements("options").at(0);
  EXPECT_EQ(p_max.string("name"), "pe.p-max");
  EXPECT_EQ(p_max.integer("default"), 64);
  EXPECT_EQ(p_max.string("range"), "1 to 1048576");
  EXPECT_EQ(cope.elements("options").at(1).elements("allowed").at(1).string(), "sqrt-d");
  const JsonValue& parameters = cope.at("parameters");
  EXPECT_EQ(parameters.elements("tensors").at(0).string("shape"), "[65, d]");
  EXPECT_EQ(parameters.elements("with").at(0).string("value"), "layers");
  const JsonValue task = found({"describe", "flip-flop", "--json"}).at(0);
  EXPECT_EQ(task.elements("splits").at(2).integer("count"), 100'000);
  EXPECT_EQ(task.integer("vocabulary"), 5);
  EXPECT_EQ(found({"describe", "cope+rope", "--json"}).at(0).elements("parts").size(), 2);
  EXPECT_EQ(found({"describe", "rope[window=256]", "--json"}).size(), 1);
  const std::vector<JsonValue> presets = found({"describe", "quick", "--json"});
  EXPECT_GT(presets.size(), 5);
  EXPECT_EQ(presets.at(0).string("kind"), "preset");
}

TEST(Describe, NamesMemoryThatGrowsWithTheSquareOfTheLength) {
  const TemporaryFolder folder;
  for (const auto& [encoding, text] :
       {std::pair{"hard", "costs about 2 B H T² numbers a layer"},
        {"relative", "costs B H T min(T, K) numbers a layer"},
        {"transformer-xl", "costs B H T² numbers a layer"},
        {"fire", "combined with another running sum costs H T² numbers a layer where T > L + 1; in backward,"}}) {
    const Finished result = run_tally({"describe", encoding}, folder);
    EXPECT_TRUE(holds(result.out, text)) << result.out;
  }
}

TEST(Describe, OnePresetByTheNameThatListPrints) {
  const TemporaryFolder folder;
  const Finished preset = run_tally({"describe", "parity", "paper"}, folder);
  EXPECT_TRUE(preset.code == 0 && preset.out.starts_with("preset paper of task parity: ")) << preset.out << preset.err;
  EXPECT_FALSE(holds(preset.out, "of task counting")) << preset.out;
  EXPECT_TRUE(holds(preset.out, "(arXiv 2207.02098)") && holds(preset.out, "p_max is ours")) << "source and note";
  const Finished wrong = run_tally({"describe", "flip-flop", "papre"}, folder);
  EXPECT_EQ(wrong.code, 2);
  EXPECT_TRUE(holds(wrong.err, "did you mean 'flip-flop paper'?")) << wrong.err;
}

TEST(Describe, KnowsEveryName) {
  const TemporaryFolder folder;
  for (const EncodingEntry* entry : encoding_registry()) {
    EXPECT_EQ(run_tally({"describe", entry->name}, folder).code, 0) << entry->name;
  }
  for (const TaskEntry* entry : task_registry()) EXPECT_EQ(run_tally({"describe", entry->name}, folder).code, 0);
}

class OnARun : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(run_tally(tiny_training(run(), "cope", {"--steps=6"}), folder_).code, 0); }
  std::string run() const { return folder_ / "run"; }
  TemporaryFolder folder_;
};

using Eval = OnARun;
using Export = OnARun;
using Show = OnARun;

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

TEST_F(Export, HoldsTheWeightsAlone) {
  const std::string out = folder_ / "weights.safetensors";
  ASSERT_EQ(run_tally({"export", run(), "--out", out}, folder_).code, 0);
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
  EXPECT_EQ(run_tally({"export", run()}, folder_).code, 2);
  EXPECT_EQ(run_tally({"export", run(), "--out", folder_ / "no/such/folder.safetensors"}, folder_).code, 1);
}

TEST_F(Show, PrintsNamesTypesShapesAndMetadata) {
  const std::string checkpoint = run() + "/checkpoints/step-00000006.safetensors";
  const Finished text = run_tally({"show", checkpoint}, folder_);
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char* part :
       {"model.blocks.0.attention.query.weight", "F32", "[8, 8]", "optimiser.", "step: 6", "all checksums hold"}) {
    EXPECT_TRUE(holds(text.out, part)) << part << "\n" << text.out;
  }
  EXPECT_EQ(json_of(run_tally({"show", checkpoint, "--json"}, folder_)).at("metadata").string("step"), "6");

  std::string bytes = read_file(checkpoint);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(checkpoint, bytes);
  const Finished broken = run_tally({"show", checkpoint}, folder_);
  EXPECT_EQ(broken.code, 1);
  EXPECT_TRUE(holds(broken.out, "checksum does not hold: ")) << broken.out;
}

TEST(ShowFile, EscapesWhatCouldHarmATerminal) {
  const TemporaryFolder folder;
  write_safetensors(folder / "f.safetensors", {{"a\x1b[2J\nb", Tensor::zeros({2, 3})}}, {{"k\x07", "v\x1b"}});
  const Finished result = run_tally({"show", folder / "f.safetensors"}, folder);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_FALSE(holds(result.out, "\x1b") || holds(result.out, "\x07"));
  EXPECT_TRUE(holds(result.out, "\\n") && holds(result.out, "[2, 3]")) << result.out;
}

TEST(ShowFile, NpyAndWhatIsNeither) {
  const TemporaryFolder folder;
  write_npy(folder / "x.npy", Tensor::zeros({2, 5}, DType::f64));
  const Finished npy = run_tally({"show", folder / "x.npy"}, folder);
  EXPECT_EQ(npy.code, 0);
  EXPECT_TRUE(holds(npy.out, "f64 [2, 5]")) << npy.out;
  write_file(folder / "text", "neither of the two, but longer than eight bytes");
  write_file(folder / "json", R"({"task":{"name": "flip-flop"}})");
  write_file(folder / "nothing", "");
  for (const char* name : {"text", "json", "nothing"}) {
    const Finished result = run_tally({"show", folder / name}, folder);
    EXPECT_TRUE(holds(result.err, "is neither a safetensors nor a .npy file")) << result.err;
  }
  write_file(folder / "cut.npy", "\x93NUMPY");
  const Finished cut = run_tally({"show", folder / "cut.npy"}, folder);
  EXPECT_EQ(cut.code, 1);
  EXPECT_TRUE(holds(cut.err, folder / "cut.npy") && holds(cut.err, "ends within its header")) << cut.err;
  for (const std::string& path :
       {folder / "text", folder / "json", folder / "nothing", folder / "missing", folder.path().string()}) {
    const Finished result = run_tally({"show", path}, folder);
    EXPECT_EQ(result.code, 1) << path;
    EXPECT_TRUE(holds(result.err, path)) << result.err;
  }
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
