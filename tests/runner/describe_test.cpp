// tally describe: lists, descriptions, the contents of files, and sequences of a task as text, JSON lines and .npy.
#include <gtest/gtest.h>

#include "core/io/npy.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/optimizer.hpp"
#include "tasks/runs/preset.hpp"
#include "tests/runner/run_files.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally::testing::describe_test {

class Describe : public Program {};
class DescribeFile : public Program {};
class Sequences : public Program {};

TEST_F(Describe, ListsAllThatIsRegisteredAndKnowsEveryName) {
  const std::string all = done("describe");
  for (const TaskEntry* entry : task_registry()) {
    expect_parts(all, {entry->summary});
    done("describe " + entry->name);
  }
  for (const EncodingEntry* entry : encoding_registry()) {
    expect_parts(all, {std::string(entry->summary)});
    done("describe " + std::string(entry->name));
  }
  for (const OptimizerEntry* entry : optimizer_registry()) expect_parts(all, {std::string(entry->summary)});
  for (const PresetEntry& entry : preset_registry()) expect_parts(all, {entry.summary});
  const JsonValue tasks = json("describe tasks");
  EXPECT_EQ(tasks.members().size(), 1U);
  EXPECT_EQ(tasks.elements("tasks").size(), task_registry().size());
}

TEST_F(Describe, StartsWithinFiftyMilliseconds) {
  double best = 1e9;
  for (int i = 0; i < 10; ++i) {  // the fastest of a few, because the machine may have other work
    const auto begin = std::chrono::steady_clock::now();
    done("describe");
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
#if defined(NDEBUG) && !defined(TALLY_SANITIZED)
  EXPECT_LT(best, 0.05);
#else
  EXPECT_LT(best, 0.5);
#endif
}

TEST_F(Describe, EncodingTaskPresetAndOptimiser) {
  for (const auto& [name, parts] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"adamw", {"kind optimiser", "adam with decoupled weight decay", "optimiser.beta2 0.999 "}},
           {"cope",
            {"p_ij = sum", "pe.p-max 64 1 to 1048576", "none|sqrt-d", "2405.18719", "position.cope.table [65, d] "}},
           {"absolute", {"model.position.absolute.table [T_max, D]"}},
           {"flip-flop", {"task.length 512 ", "ood-sparse 100000 ", "endless", "paper", "quick"}},
           {"quick", {"task counting", "task flip-flop", "task selective-copy", "optimiser.lr"}},
           {"parity paper", {"2023 (arXiv 2207.02098): 5 layers", "p_max is ours", "note "}},
           {"hard", {"materialised: needs about 2 B H T² numbers a layer"}},
           {"fire", {"combined with another running sum it needs H T² numbers a layer if T > L + 1; in backward"}}}) {
    std::istringstream text(done("describe " + name));
    std::string flat;  // one space between words
    for (std::string word; text >> word;) flat += word + " ";
    expect_parts(flat, parts);
  }
  EXPECT_FALSE(holds(done("describe parity paper"), "counting"));
  refused(
      {{"describe flip-flop papre", "did you mean 'flip-flop paper'?"}, {"describe task", "did you mean 'tasks'?"}});
}

TEST_F(Describe, HasAllOfItAsAValue) {
  const auto found = [&](const std::string& name) { return json("describe " + name).elements("found"); };
  const JsonValue cope = found("cope").at(0);
  const JsonValue& p_max = cope.elements("options").at(0);
  EXPECT_EQ(p_max.string("name"), "pe.p-max");
  EXPECT_EQ(p_max.integer("default"), 64);
  EXPECT_EQ(p_max.string("values"), "1 to 1048576");
  EXPECT_EQ(cope.elements("parameters").at(0).string("shape"), "[65, d]");
  EXPECT_EQ(found("flip-flop").at(0).elements("splits").at(2).integer("sequences"), 100'000);
  EXPECT_EQ(found("cope+rope").at(0).elements("parts").size(), 2);
  EXPECT_EQ(found("rope[window=256]").size(), 1);
  EXPECT_GT(found("quick").size(), 5);
}

TEST_F(DescribeFile, NamesTypesShapesAndMetadata) {
  done(tiny("run", "cope"));
  const std::string checkpoint = "run/checkpoints/step-00000004.safetensors";
  expect_parts(done("describe " + checkpoint),
               {"model.blocks.0.attention.query.weight", "F32", "[8, 8]", "optimiser.", "step", "bad_checksums  none"});
  EXPECT_EQ(json("describe " + checkpoint).at("metadata").string("step"), "4");
  damage(folder_ / checkpoint);
  const Finished broken = tally("describe " + checkpoint);
  EXPECT_EQ(broken.code, 1);
  EXPECT_FALSE(holds(broken.out, "bad_checksums  none")) << broken.out;
}

TEST_F(DescribeFile, EscapesWhatCouldHarmATerminal) {
  write_safetensors(folder_ / "f", {{"a\x1b[2J\nb", Tensor::full({3, 2}, 1.5, DType::f32, {}).to(DType::bf16)}},
                    {{"k\x07", "v\x1b\n\x1b"}});
  const std::string text = done("describe ./f");
  EXPECT_FALSE(holds(text, "\x1b") || holds(text, "\x07"));
  expect_parts(text, {"\\nb  BF16  [3, 2]", "bytes     12"});
}

TEST_F(DescribeFile, NpyAndWhatIsNeither) {
  write_npy(folder_ / "x.npy", Tensor::zeros({2, 5}, DType::f64));
  expect_parts(done("describe x.npy"), {"f64", "[2, 5]"});
  write_file(folder_ / "text", "neither of the two, but longer than eight bytes");
  write_file(folder_ / "json", R"({"task":{"name": "flip-flop"}})");
  write_file(folder_ / "nothing", "");
  for (const std::string name : {"./text", "./json", "./nothing"}) {
    refused("describe " + name, "is neither a safetensors nor a .npy file", 1);
  }
  refused("describe ./missing", "./missing", 1);
}

TEST_F(Sequences, OneSequenceALine) {
  const auto task = make_task("flip-flop", {{"length", "12"}}, 7);
  EXPECT_EQ(done("describe flip-flop --length=12 --seed=7 --split train --sequences 3 --start 4"),
            text_of(*task, "train", 4) + "\n" + text_of(*task, "train", 5) + "\n" + text_of(*task, "train", 6) + "\n");
}

TEST_F(Sequences, JsonLinesAndTokensHoldTheSame) {
  const std::string what = "describe selective-copy --preset quick --split ood-dense --sequences 2 ";
  const std::string lines = done(what + "--json");
  done(what + "--out a.jsonl --quiet");
  EXPECT_EQ(file("a.jsonl"), lines);
  done(what + "--out a.txt");
  EXPECT_EQ(file("a.txt"), done(what));
  EXPECT_EQ(json(what + "--out a.npy").integer("sequences"), 2);

  const Tensor tokens = read_npy(folder_ / "a.npy");
  EXPECT_EQ(tokens.shape(), (Shape{2, 40}));
  const std::vector<std::int32_t> ids = tokens.to_vector<std::int32_t>();
  std::size_t next = 0;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    const JsonValue one = parse_json(line, {}, "line");
    for (const JsonValue& token : one.elements("tokens")) EXPECT_EQ(token.integer(), ids[next++]);
    std::int64_t scored = 0;
    for (const JsonValue& mask : one.elements("score_mask")) scored += mask.integer();
    EXPECT_EQ(scored, 16);
    EXPECT_EQ(one.string("text").size(), 40u);
  }
  EXPECT_EQ(next, ids.size());
}

TEST_F(Sequences, WrongUsage) {
  for (const auto& [options, message] :
       std::vector<Refusal>{{"--sequences 0", "0 not in range"},
                            {"--sequences 1 --start -1", "-1 not in range"},
                            {"--sequences 1 --split sparse", "known are train, in-distribution, ood-sparse"},
                            {"--sequences 1 --length=13", "even"},
                            {"--sequences 2 --split ood-dense --start 2999",
                             "ood-dense has 3000 sequences, asked for 2 from number 2999 on"},
                            {"--split ood-dense", "--split requires --sequences"},
                            {"--length=12", "requires --sequences"}}) {
    const Finished finished = tally("describe flip-flop " + options);
    EXPECT_EQ(finished.code, 2) << message;
    EXPECT_TRUE(holds(finished.err, message)) << finished.err;
    EXPECT_LT(finished.err.size(), 200u) << finished.err;
    EXPECT_EQ(finished.out, "");
  }
  refused(
      {{"describe counting --preset quick --split test --sequences 20 --out a.npy", "needs equal lengths"},
       {"describe flip-flop --sequences=1 --out missing/x", "missing/x: cannot create the file"},
       {"describe flip-flop --sequences=1 --out missing/x.npy", "missing/x.npy: cannot create the file"},
       {"describe flip-flop --sequences 4294967296 --length 65536 --out a.npy", "this needs about 1 PiB (data 1 PiB)"}},
      1);
  EXPECT_FALSE(exists("a.npy"));
}

#ifndef TALLY_SANITIZED  // sanitizers need more data of their own
// Writes 80 MB of lines with at most 64 MiB of data.
TEST_F(Sequences, LinesAreNotCollected) {
  const Finished result =
      shell("ulimit -d 65536; exec '" TALLY_RUNNER "' describe flip-flop --sequences 16000 --out a.jsonl");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_GT(std::filesystem::file_size(folder_ / "a.jsonl"), 70'000'000u);
}
#endif

TEST_F(Sequences, ASignalLeavesNothingOfTheFile) {
  for (const auto& [signal, code] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    const pid_t process = start("describe flip-flop --sequences=1000000 --length=64 --out a.jsonl");
    EXPECT_TRUE(comes_true([&] {
      std::error_code none;
      return exists("a.jsonl.tmp") && std::filesystem::file_size(folder_ / "a.jsonl.tmp", none) > 0;
    }));
    send_signal(process, signal);
    EXPECT_EQ(finish(process).code, code);
    EXPECT_FALSE(exists("a.jsonl") || exists("a.jsonl.tmp"));
  }
}

}  // namespace tally::testing::describe_test
