// tally bench: figures as JSON, no system memory taken in a steady step, several encodings in turns.
#include <gtest/gtest.h>

#include "tests/devices.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::bench_test {

class Bench : public Program {
 protected:
  static std::string line(const std::string& options) {
    return "bench " + options + " --length=24 --batch=2 --model.width=16 --model.heads=2 --threads=1";
  }
  JsonValue bench(const std::string& options) { return json(line(options)); }
  JsonValue once(const std::string& options) { return bench(options + " --steps=1 --warmup=0"); }
};

TEST_F(Bench, StepAsOneObject) {
  const JsonValue step = bench("step --pe cope --pe.p-max=8 --model.layers=2 --steps=3 --warmup=1");
  EXPECT_EQ(step.string("pe"), "cope");
  EXPECT_EQ(step.integer("length"), 24);
  EXPECT_GT(step.real("min_s"), 0);
  EXPECT_LE(step.real("min_s"), step.real("step_s"));
  EXPECT_LE(step.real("step_s"), step.real("max_s"));
  EXPECT_NEAR(static_cast<double>(step.integer("tokens_per_s")), 2 * 24 / step.real("step_s"), 1);
  EXPECT_GT(step.integer("peak_rss_mib"), 0);
  EXPECT_EQ(step.at("machine").integer("threads"), 1);
  // Embedding and head, final norm; in each block two norms, q k v o, up and down, 9 positions of 8.
  const std::int64_t block = 4 * 16 + 4 * (16 * 16 + 16) + (64 * 16 + 64) + (16 * 64 + 16) + 9 * 8;
  EXPECT_EQ(step.integer("parameters"), 2 * 5 * 16 + 2 * 16 + 2 * block);
  EXPECT_FALSE(step.contains("graph_kernels"));
}

TEST_F(Bench, TheSizeOfACapturedStep) {
  const JsonValue step = bench("step --device=cuda-host --pe cope --model.layers=1 --steps=1 --warmup=1");
  EXPECT_GT(step.integer("graph_kernels"), 0);
  EXPECT_EQ(step.integer("graph_allocations"), 0);
  EXPECT_GT(step.integer("graph_memory_bytes"), 0);
}

// A step of bench equals a step of `train` with its batches and options: the same loss and norm after the same number
// of steps.
TEST_F(Bench, StepIsThatOfTraining) {
  const std::string options =
      " --pe=cope --task=selective-copy --preset=quick --task.blanks=6 --task.dense-blanks=2 --task.sparse-blanks=8"
      " --task.eval-count=2 --batch=3 --seed=5 --model.layers=1 --model.width=8 --model.heads=2 --model.dropout=0.1"
      " --optimiser.lr=0.03 --optimiser.schedule=constant --optimiser.warmup=2 --threads=1";
  const auto timed = [&](const std::string& clip) {
    return json("bench step --steps=3 --warmup=1 --optimiser.clip=" + clip + options);
  };
  done("train run --steps=4 --log-every=1 --eval-every=0 --eval-count=0 --quiet --optimiser.clip=0.01" + options);
  const JsonValue clipped = timed("0.01");
  bool found = false;
  for (const std::string& text : metrics_of(folder_ / "run")) {
    const JsonValue metrics = parse_json(text, {}, "metrics");
    if (!metrics.contains("grad_norm") || metrics.integer("step") != 4) continue;
    found = true;
    EXPECT_EQ(metrics.real("loss"), clipped.real("loss"));
    EXPECT_EQ(metrics.real("grad_norm"), clipped.real("grad_norm"));
  }
  EXPECT_TRUE(found);
  EXPECT_NE(timed("0").real("loss"), clipped.real("loss"));
  EXPECT_EQ(clipped.integer("length"), 16 + 6 + 16);  // trained on; evaluation has longer sequences
}

// Memory to the byte: the same step really runs, and runs on a counting device.
TEST_F(Bench, ADryRunTellsWhatThereWouldBe) {
  for (const std::string encoding : {"none", "cope"}) {
    const JsonValue told = bench("step --dry-run --model.layers=2 --pe " + encoding);
    EXPECT_FALSE(told.contains("step_s"));
    EXPECT_EQ(told.real("memory_bytes"),
              bench("step --model.layers=2 --steps=2 --warmup=0 --pe " + encoding).real("tensor_peak_bytes"));
  }
  const JsonValue step = bench("step --dry-run --pe 0:none,1:cope --pe.p-max=8 --model.layers=2 --vocab=7");
  EXPECT_EQ(step.integer("encoding_parameters"), 9 * 8);
  // Two blocks of 12 D^2 + 13 D, two embeddings of 7 rows, the last norm.
  EXPECT_EQ(step.integer("parameters"), 2 * (12 * 256 + 13 * 16) + 2 * 7 * 16 + 2 * 16 + 9 * 8);
  // The encoding of the first layer, which is the measured one.
  EXPECT_EQ(bench("attention --dry-run --pe=0:none,1:cope --model.layers=2").integer("encoding_parameters"), 0);
  const JsonValue attention = bench("attention --dry-run --pe=cope --pe.p-max=8");
  EXPECT_EQ(attention.integer("encoding_parameters"), 9 * 8);
  EXPECT_GT(attention.real("memory_bytes"), 14 * 4 * 2 * 24 * 16);
  EXPECT_FALSE(attention.contains("forward_s"));
  EXPECT_TRUE(holds(done(line("step --dry-run --pe cope")), "memory of a step"));
}

// Reports the attention that ran, not the requested one: an encoding may need materialised weights.
TEST_F(Bench, NamesTheFormThatRan) {
  for (const auto& [options, form] : {std::pair{"attention --pe=hard", "composed"},
                                      {"step --pe=0:none,1:hard --model.layers=2", "tiled and composed"},
                                      {"attention --pe=hard@0,cope@1", "tiled and composed"},
                                      {"step --pe=cope --model.attention=composed", "composed"}}) {
    EXPECT_EQ(once(options).string("attention"), form) << options;
  }
}

// Parameters without gradients have no optimiser state, as in training.
TEST_F(Bench, EveryCombinationOfSettings) {
  const JsonValue four = once("attention --pe cope --set pe.p-max=4,9 --set length=8,16");
  ASSERT_EQ(four.elements("variants").size(), 4u);
  EXPECT_EQ(four.elements("variants")[2].string("pe.p-max"), "9");
  EXPECT_EQ(four.elements("variants")[2].string("length"), "8");
  const JsonValue::Array trained = once("step --pe cope --set train=all,pe.*").elements("variants");
  EXPECT_LT(trained.at(1).real("tensor_peak_bytes"), trained.at(0).real("tensor_peak_bytes"));
}

TEST_F(Bench, ASteadyStepTakesNoMemoryFromTheSystem) {
#ifdef TALLY_SANITIZED
  GTEST_SKIP() << "under a sanitizer every block is taken from the system";
#endif
  for (const std::string encoding : {"cope", "alibi", "relative", "rope"}) {
    EXPECT_EQ(bench("step --steps=4 --warmup=2 --pe " + encoding).real("system_allocations_per_step"), 0) << encoding;
  }
}

// One line per encoding, compared with the first. Only the encoding differs between lines.
TEST_F(Bench, SeveralEncodingsInTurns) {
  const std::string three = " --pe=none,cope+rope,alibi[window=5,first=2] --pe.cope.p-max=4 --steps=1 --rounds=2";
  for (const std::string work : {"step", "attention"}) {
    const JsonValue turns = bench(work + three);
    EXPECT_EQ(turns.integer("rounds"), 2);
    const JsonValue::Array& lines = turns.elements("variants");
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(lines[0].real("ratio"), 1);
    EXPECT_EQ(lines[1].string("pe"), "cope+rope");
    EXPECT_EQ(lines[2].string("pe"), "alibi[window=5,first=2]");
    for (const JsonValue& one : lines) EXPECT_GT(one.real("ratio"), 0);
    if (work == "step") {  // the option applied only to the encoding that has it
      EXPECT_EQ(lines[1].integer("parameters") - lines[0].integer("parameters"), 4 * 5 * 8);
    }
  }
  expect_parts(done(line("attention --pe=none,hard --steps=1 --warmup=0")),
               {"| encoding | ", "of the first's time", "of 3 rounds", "\n| hard     | ", " composed "});
  EXPECT_FALSE(bench("step --dry-run --pe=none;0:cope,1-3:none").elements("variants")[1].contains("ratio"));
}

TEST_F(Bench, WrongUsage) {
  for (const std::string wrong :
       {"stp", "", "ops", "step --steps=0", "step --pe alib", "step --pe alibi --pe.p-max=3", "step --model.layers=0",
        "step --vocab=7", "step --pe=none,cpoe", "step --pe=none,", "step --set train=nothing.*",
        "attention --set length=8 --set length=16", "attention --pe=relative --pe.distances=23 --dry-run",
        "step --dry-run --steps=3", "step --dry-run --rounds=2"}) {
    EXPECT_EQ(tally(line(wrong)).code, 2) << wrong;
  }
  for (const std::string set : {"pe.p-max", "pe.p-max=4,x", "pe.base=3", "length=0", "length=8,1e3", "batch=-1",
                                "step=3", "task.lenth=8", "model.heads=3", "model.attention=tiles"}) {
    const Finished finished = tally(line("attention --pe cope --set " + set));
    EXPECT_EQ(finished.code, 2) << set;
    EXPECT_EQ(finished.out, "") << set;
  }
  for (const std::string work : {"step", "attention"}) {
    refused(line(work + " --pe=relative --pe.distances=23"), "the table has 23 distances, the sequence 24 tokens");
    once(work + " --pe=relative --pe.distances=24");
  }
}

}  // namespace tally::testing::bench_test
