// tally describe: lists, descriptions, the contents of files, and sequences of a task as text, JSON
// lines and .npy.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <string>
#include <vector>

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
#include "tests/tasks/make_task.hpp"

namespace tally::testing {
namespace describe_test {

TEST(Describe, ListsAllThatIsRegistered) {
  const TemporaryFolder folder;
  const Finished all = run_tally({"describe"}, folder);
  EXPECT_EQ(all.code, 0);
  for (const TaskEntry* entry : task_registry()) EXPECT_TRUE(holds(all.out, entry->summary)) << entry->name;
  for (const EncodingEntry* entry : encoding_registry()) EXPECT_TRUE(holds(all.out, entry->summary)) << entry->name;
  for (const OptimizerEntry* entry : optimizer_registry()) EXPECT_TRUE(holds(all.out, entry->summary)) << entry->name;
  for (const PresetEntry& entry : preset_registry()) EXPECT_TRUE(holds(all.out, entry.summary)) << entry.name;
  const JsonValue tasks = json_of({"describe", "tasks"}, folder);
  EXPECT_EQ(tasks.members().size(), 1U);
  EXPECT_EQ(tasks.elements("tasks").size(), task_registry().size());
}

TEST(Describe, StartsWithinFiftyMilliseconds) {
  const TemporaryFolder folder;
  double best = 1e9;
  for (int i = 0; i < 10; ++i) {  // the fastest of a few, because the machine may have other work
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(run_tally({"describe"}, folder).code, 0);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
#if defined(NDEBUG) && !defined(TALLY_SANITIZED)
  EXPECT_LT(best, 0.05);
#else
  EXPECT_LT(best, 0.5);
#endif
}

TEST(Describe, EncodingTaskPresetAndOptimiser) {
  const TemporaryFolder folder;
  const auto flat = [](const std::string& text) {  // one space between words
    std::string words;
    std::istringstream stream(text);
    for (std::string word; stream >> word;) words += word + " ";
    return words;
  };
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases{
      {"adamw", {"kind optimiser", "adam with decoupled weight decay", "optimiser.beta2 0.999 "}},
      {"cope", {"p_ij = sum", "pe.p-max 64 1 to 1048576", "none|sqrt-d", "2405.18719", "position.cope.table [65, d] "}},
      {"absolute", {"model.position.absolute.table [T_max, D]"}},
      {"flip-flop", {"task.length 512 ", "ood-sparse 100000 ", "endless", "paper", "quick"}},
      {"quick", {"task counting", "task flip-flop", "task selective-copy", "optimiser.lr"}},
      {"flip-flop paper", {"task flip-flop", "source CoPE paper (arXiv 2405.18719), section 5.1", "note "}},
      {"parity paper", {"2023 (arXiv 2207.02098): 5 layers", "p_max is ours"}},
      {"hard", {"costs about 2 B H T² numbers a layer"}},
      {"relative", {"costs B H T min(T, K) numbers a layer"}},
      {"transformer-xl", {"costs B H T² numbers a layer"}},
      {"fire", {"combined with another running sum costs H T² numbers a layer where T > L + 1; in backward,"}}};
  for (const auto& [name, parts] : cases) {
    const Finished result = run_tally({"describe", name}, folder);
    EXPECT_EQ(result.code, 0) << result.err;
    for (const std::string& part : parts) EXPECT_TRUE(holds(flat(result.out), part)) << part << "\n" << result.out;
  }
  const Finished one = run_tally({"describe", "parity", "paper"}, folder);
  EXPECT_TRUE(one.code == 0 && !holds(one.out, "counting")) << one.out << one.err;
  for (const auto& [name, hint] : {std::pair{"flip-flop papre", "flip-flop paper"}, {"task", "tasks"}}) {
    const Finished wrong = run_tally({"describe", name}, folder);
    EXPECT_EQ(wrong.code, 2);
    EXPECT_TRUE(holds(wrong.err, formatted("did you mean '{}'?", hint))) << wrong.err;
  }
}

TEST(Describe, HasAllOfItAsAValue) {
  const TemporaryFolder folder;
  const auto found = [&](const std::string& name) {
    const JsonValue value = json_of({"describe", name}, folder);
    EXPECT_EQ(value.string("name"), name);
    return value.elements("found");
  };
  const JsonValue cope = found("cope").at(0);
  const JsonValue& p_max = cope.elements("options").at(0);
  EXPECT_EQ(p_max.string("name"), "pe.p-max");
  EXPECT_EQ(p_max.integer("default"), 64);
  EXPECT_EQ(p_max.string("values"), "1 to 1048576");
  EXPECT_EQ(cope.elements("parameters").at(0).string("shape"), "[65, d]");
  const JsonValue task = found("flip-flop").at(0);
  EXPECT_EQ(task.elements("splits").at(2).integer("sequences"), 100'000);
  EXPECT_EQ(task.integer("vocabulary"), 5);
  EXPECT_EQ(found("cope+rope").at(0).elements("parts").size(), 2);
  EXPECT_EQ(found("rope[window=256]").size(), 1);
  EXPECT_GT(found("quick").size(), 5);
}

TEST(Describe, KnowsEveryName) {
  const TemporaryFolder folder;
  for (const EncodingEntry* entry : encoding_registry()) {
    EXPECT_EQ(run_tally({"describe", entry->name}, folder).code, 0) << entry->name;
  }
  for (const TaskEntry* entry : task_registry()) EXPECT_EQ(run_tally({"describe", entry->name}, folder).code, 0);
}

TEST(DescribeFile, NamesTypesShapesAndMetadata) {
  const TemporaryFolder folder;
  ASSERT_EQ(run_tally(tiny_training(folder / "run", "cope"), folder).code, 0);
  const std::string checkpoint = folder / "run/checkpoints/step-00000004.safetensors";
  const Finished text = run_tally({"describe", checkpoint}, folder);
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char* part :
       {"model.blocks.0.attention.query.weight", "F32", "[8, 8]", "optimiser.", "step", "bad_checksums  none"}) {
    EXPECT_TRUE(holds(text.out, part)) << part << "\n" << text.out;
  }
  EXPECT_EQ(json_of({"describe", checkpoint}, folder).at("metadata").string("step"), "4");
  std::string bytes = read_file(checkpoint);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(checkpoint, bytes);
  const Finished broken = run_tally({"describe", checkpoint}, folder);
  EXPECT_EQ(broken.code, 1);
  EXPECT_FALSE(holds(broken.out, "bad_checksums  none")) << broken.out;
}

TEST(DescribeFile, EscapesWhatCouldHarmATerminal) {
  const TemporaryFolder folder;
  write_safetensors(folder / "f", {{"a\x1b[2J\nb", Tensor::full({3, 2}, 1.5, DType::f32, {}).to(DType::bf16)}},
                    {{"k\x07", "v\x1b\n\x1b"}});
  const Finished result = run_tally({"describe", folder / "f"}, folder);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_FALSE(holds(result.out, "\x1b") || holds(result.out, "\x07"));
  EXPECT_TRUE(holds(result.out, "\\nb  BF16  [3, 2]") && holds(result.out, "bytes     12")) << result.out;
}

TEST(DescribeFile, NpyAndWhatIsNeither) {
  const TemporaryFolder folder;
  write_npy(folder / "x.npy", Tensor::zeros({2, 5}, DType::f64));
  const Finished npy = run_tally({"describe", folder / "x.npy"}, folder);
  EXPECT_EQ(npy.code, 0);
  EXPECT_TRUE(holds(npy.out, "f64") && holds(npy.out, "[2, 5]")) << npy.out;
  write_file(folder / "text", "neither of the two, but longer than eight bytes");
  write_file(folder / "json", R"({"task":{"name": "flip-flop"}})");
  write_file(folder / "nothing", "");
  for (const char* name : {"text", "json", "nothing"}) {
    const Finished result = run_tally({"describe", folder / name}, folder);
    EXPECT_TRUE(holds(result.err, "is neither a safetensors nor a .npy file")) << result.err;
  }
  write_file(folder / "cut.npy", "\x93NUMPY");
  const Finished cut = run_tally({"describe", folder / "cut.npy"}, folder);
  EXPECT_EQ(cut.code, 1);
  EXPECT_TRUE(holds(cut.err, folder / "cut.npy") && holds(cut.err, "ends within its header")) << cut.err;
  for (const std::string& path :
       {folder / "text", folder / "json", folder / "nothing", folder / "missing", folder.path().string()}) {
    const Finished result = run_tally({"describe", path}, folder);
    EXPECT_EQ(result.code, 1) << path;
    EXPECT_TRUE(holds(result.err, path)) << result.err;
  }
}

class Sequences : public ::testing::Test {
 protected:
  Finished describe(std::vector<std::string> words) {
    words.insert(words.begin(), "describe");
    return run_tally(words, folder_);
  }
  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }

  TemporaryFolder folder_;
};

TEST_F(Sequences, OneSequenceALine) {
  const auto task = make_task("flip-flop", {{"length", "12"}}, 7);
  const Finished finished =
      describe({"flip-flop", "--length=12", "--seed=7", "--split", "train", "--sequences", "3", "--start", "4"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  const std::vector<std::string> expected{text_of(*task, "train", 4), text_of(*task, "train", 5),
                                          text_of(*task, "train", 6)};
  EXPECT_EQ(lines_of(finished.out), expected);
  EXPECT_EQ(expected[0].size(), 12u);
}

TEST_F(Sequences, JsonLinesAndTokensHoldTheSame) {
  const std::vector<std::string> what{"selective-copy", "--preset",    "quick", "--split",
                                      "ood-dense",      "--sequences", "2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), what.begin(), what.end());
    return describe(more);
  };
  const Finished json = with({"--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  ASSERT_EQ(with({"--out", folder_ / "a.jsonl", "--quiet"}).code, 0);
  EXPECT_EQ(read_file(folder_ / "a.jsonl"), json.out);
  ASSERT_EQ(with({"--out", folder_ / "a.txt"}).code, 0);
  EXPECT_EQ(read_file(folder_ / "a.txt"), with({}).out);
  const Finished written = with({"--out", folder_ / "a.npy", "--json"});
  EXPECT_EQ(parse_json(written.out, JsonLimits{}, "data").integer("sequences"), 2);

  const Tensor tokens = read_npy(folder_ / "a.npy");
  EXPECT_EQ(tokens.shape(), (Shape{2, 40}));
  const std::vector<std::int32_t> ids = tokens.to_vector<std::int32_t>();
  std::size_t next = 0;
  for (const std::string& line : lines_of(json.out)) {
    const JsonValue one = parse_json(line, JsonLimits{}, "line");
    for (const JsonValue& token : one.elements("tokens")) EXPECT_EQ(token.integer(), ids[next++]);
    std::int64_t scored = 0;
    for (const JsonValue& mask : one.elements("score_mask")) scored += mask.integer();
    EXPECT_EQ(scored, 16);
    EXPECT_EQ(one.string("text").size(), 40u);
  }
  EXPECT_EQ(next, ids.size());
}

TEST_F(Sequences, UnequalLengthsAreNoArray) {
  const Finished finished =
      describe({"counting", "--preset", "quick", "--split", "test", "--sequences", "20", "--out", folder_ / "a.npy"});
  EXPECT_EQ(finished.code, 1);
  EXPECT_NE(finished.err.find("needs equal lengths"), std::string::npos) << finished.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a.npy"));
}

TEST_F(Sequences, WrongUsage) {
  for (const auto& [options, message] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--sequences", "0"}, "0 not in range"},
           {{"--sequences", "1", "--start", "-1"}, "-1 not in range"},
           {{"--sequences", "1", "--split", "sparse"}, "known are train, in-distribution, ood-sparse"},
           {{"--sequences", "1", "--length=13"}, "even"},
           {{"--sequences", "2", "--split", "ood-dense", "--start", "2999"},
            "ood-dense has 3000 sequences, asked for 2 from number 2999 on"},
           {{"--sequences", "1", "--split", "ood-dense", "--start", "3000"},
            "ood-dense has sequences 0 to 2999, asked for 3000"},
           {{"--split", "ood-dense"}, "--split requires --sequences"},
           {{"--length=12"}, "requires --sequences"}}) {
    std::vector<std::string> words{"flip-flop"};
    words.insert(words.end(), options.begin(), options.end());
    const Finished refused = describe(words);
    EXPECT_EQ(refused.code, 2) << message;
    EXPECT_TRUE(holds(refused.err, message)) << refused.err;
    EXPECT_LT(refused.err.size(), 200u) << refused.err;
    EXPECT_EQ(refused.out, "");
  }
  EXPECT_TRUE(holds(describe({"flipflop", "--sequences=1"}).err, "did you mean 'flip-flop'"));
}

TEST_F(Sequences, AFolderThatIsNotThereIsNamedWithTheFileAskedFor) {
  for (const std::string& path : {folder_ / "missing/x", folder_ / "missing/x.npy"}) {
    const Finished result = describe({"flip-flop", "--sequences=1", "--out", path});
    EXPECT_EQ(result.code, 1);
    EXPECT_NE(result.err.find(path + ": cannot create the file"), std::string::npos) << result.err;
  }
}

#ifndef TALLY_SANITIZED  // sanitizers need more data of their own
// Writes 80 MB of lines with at most 64 MiB of data.
TEST_F(Sequences, LinesAreNotCollected) {
  const std::string limited = "ulimit -d 65536; exec '" TALLY_RUNNER "' describe flip-flop --sequences 16000 --out '" +
                              (folder_ / "a.jsonl") + "'";
  const Finished result = run_program({"/bin/sh", "-c", limited}, folder_);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_GT(std::filesystem::file_size(folder_ / "a.jsonl"), 70'000'000u);
}
#endif

TEST_F(Sequences, ASignalLeavesNothingOfTheFile) {
  const std::string out = folder_ / "a.jsonl";
  for (const auto& [signal, code] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    const pid_t process = start_program(
        {TALLY_RUNNER, "describe", "flip-flop", "--sequences=1000000", "--length=64", "--out", out}, folder_);
    const auto begun = [&] {
      std::error_code none;
      return std::filesystem::exists(out + ".tmp") && std::filesystem::file_size(out + ".tmp", none) > 0;
    };
    EXPECT_TRUE(comes_true(begun));
    send_signal(process, signal);
    EXPECT_EQ(finish_program(process, folder_).code, code);
    EXPECT_FALSE(std::filesystem::exists(out) || std::filesystem::exists(out + ".tmp"));
  }
}

TEST_F(Sequences, AnArrayThatDoesNotFitInMemoryIsRefused) {
  const std::string out = folder_ / "a.npy";
  const Finished result = describe({"flip-flop", "--sequences", "4294967296", "--length", "65536", "--out", out});
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.err.find("this needs about 1 PiB (data 1 PiB)"), std::string::npos) << result.err;
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace describe_test
}  // namespace tally::testing
