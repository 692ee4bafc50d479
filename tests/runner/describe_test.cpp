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

TEST_F(Sequences, OneSequenceALine) {
  const auto task = make_task("flip-flop", {{"length", "12"}}, 7);
  EXPECT_EQ(done("describe flip-flop --length=12 --seed=7 --split train --sequences 3 --start 4"),
            text_of(*task, "train", 4) + "\n" + text_of(*task, "train", 5) + "\n" + text_of(*task, "train", 6) + "\n");
}

TEST_F(Sequences, JsonLinesAndTokensHoldTheSame) {
  const std::string what = "describe selective-copy --preset quick --split ood-dense --sequences 2 ";
  const std::string lines = done(what + "--json");
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

}  // namespace tally::testing::describe_test
