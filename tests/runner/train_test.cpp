// `tally train`: its output and files.
#include <gtest/gtest.h>

#include "tests/runner/run_files.hpp"

namespace tally::testing::train_test {

class Train : public Program {};

TEST_F(Train, LeavesTheFilesOfARun) {
  done(tiny("run", "cope", "--steps=8"));
  EXPECT_EQ(names_of_checkpoints(folder_ / "run").back(), "step-00000008.safetensors");
  EXPECT_LE(checkpoints_of(folder_ / "run").size(), 3U);  // the last two and the best
  const JsonValue config = file_json("run/config.json");
  EXPECT_EQ(config.at("task").string("name"), "flip-flop");
  EXPECT_EQ(config.string("pe"), "cope");
  EXPECT_EQ(config.at("run").integer("steps"), 8);

  std::int64_t step = 0;
  const std::vector<std::string> lines = metrics_of(folder_ / "run");
  EXPECT_TRUE(holds(lines.front(), R"({"run":"tally")")) << lines.front();
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const JsonValue line = parse_json(lines[i], {}, "metrics");
    EXPECT_GE(line.integer("step"), step);
    step = line.integer("step");
    for (const char* key : {"split", "loss", "token_error", "sequence_error"})
      EXPECT_TRUE(line.contains(key)) << lines[i];
    if (line.string("split") != "train") continue;
    for (const char* key : {"lr", "grad_norm", "tokens"}) EXPECT_TRUE(line.contains(key)) << lines[i];
  }
  const JsonValue results = file_json("run/results.json");
  EXPECT_EQ(results.integer("steps"), 8);
  ASSERT_EQ(results.elements("evaluations").size(), 3U);
  EXPECT_EQ(results.elements("evaluations")[1].string("split"), "ood-sparse");
}

TEST_F(Train, ConfigurationComesFirst) {
  const pid_t process = start(tiny("run", "cope", "--steps=1000000 --eval-every=1000000"));
  EXPECT_TRUE(comes_true([&] { return exists("run/metrics.jsonl"); }));
  EXPECT_EQ(file_json("run/config.json").string("pe"), "cope");
  send_signal(process, SIGKILL);
  finish(process);
}

TEST_F(Train, PrintsTheConfigurationAndPlainLinesUnlessQuiet) {
  const std::string quiet = done(tiny("run", "cope")), printed = done(loud(tiny("loud", "cope", "--device=cpu")));
  expect_parts(printed, {"model.width=8", "next: 'tally inspect ", "parameters", ", device cpu, BLAS ", "thread",
                         "tokens/s", "peak memory", "95% interval"});
  EXPECT_FALSE(holds(printed, "\r") || holds(printed, "\033")) << "no terminal, no redrawn line";
  EXPECT_FALSE(holds(printed, "model.norm=")) << "a default\n" << printed;
  EXPECT_FALSE(holds(quiet, "model.width")) << quiet;
  EXPECT_TRUE(holds(quiet, "ood-dense")) << quiet;
  EXPECT_EQ(json(loud(tiny("json", "cope"))).integer("steps"), 4);
  expect_parts(done(loud(tiny("host", "none", "--steps=1 --device=cuda-host"))), {", device cuda-host, BLAS "});
}

TEST_F(Train, DryRunTellsAndStops) {
  done(tiny("run", "cope"));
  const JsonValue plan = json(tiny("plan", "cope", "--dry-run"));
  EXPECT_EQ(plan.integer("parameters"), file_json("run/results.json").integer("parameters"));
  EXPECT_EQ(plan.integer("encoding_parameters"), 2 * 65 * 4);
  EXPECT_EQ(plan.integer("tokens_per_step"), 64);
  EXPECT_GT(plan.real("memory_bytes"), 0);
  EXPECT_FALSE(plan.boolean("memory_at_most"));
  EXPECT_TRUE(plan.at("config") == file_json("run/config.json"));
  // FIRE learns whether its bias depends only on the distance.
  expect_parts(done("train plan --task=flip-flop --preset=quick --pe=fire --dry-run"),
               {"\nmemory for tensors: at most ", "\ntime on this machine: about "});
  refused({{tiny("plan", "cope", "--dry-run --force"), "tally: train: --force excludes --dry-run\n"},
           {tiny("plan", "cope", "--dry-run --profile=x"), "tally: train: --profile excludes --dry-run\n"},
           {"reproduce table2 --dry-run --out=x.md", "tally: reproduce: --out excludes --dry-run\n"}});
  EXPECT_FALSE(exists("plan"));
}

// The error comes at the start, not when a split first has such a sequence, possibly at the end of the run.
TEST_F(Train, SequencesThatTheEncodingDoesNotTakeAreWrongUsage) {
  const std::string too_long = "the table has 10 distances, the sequence 16 tokens";
  refused({{tiny("run", "relative", "--pe.distances=10"), too_long},
           {tiny("run", "relative", "--pe.distances=10 --dry-run"), too_long},
           {tiny("run", "cope;relative", "--pe.relative.distances=10 --seeds=1", "sweep"), too_long},
           // Enough for training sequences, but not for ood-sparse.
           {"train run --task=selective-copy --preset=quick --pe=relative --pe.distances=48",
            "the table has 48 distances, the sequence 64 tokens"}});
  EXPECT_FALSE(exists("run"));
  done(tiny("run", "relative", "--pe.distances=16"));
  refused("resume run --steps=8 --task.length=20", "the table has 16 distances, the sequence 20 tokens");
  EXPECT_EQ(file_json("run/config.json").at("run").integer("steps"), 4);
}

TEST_F(Train, ThreadsDoNotChangeABit) {
  for (const std::string threads : {"1", "2", "3"}) {
    done(tiny(threads, "cope",
              "--length=64 --model.width=32 --batch=16 --steps=6 --model.dropout=0.1 --threads=" + threads));
    expect_same_run(folder_ / threads, folder_ / "1");
  }
}

TEST_F(Train, AConfigurationFileMakesTheSameRun) {
  done(tiny("run", "cope"));
  done("train again --config run/config.json");
  expect_same_run(folder_ / "again", folder_ / "run");
  done("train rope --config run/config.json --pe=rope --steps=3");
  const JsonValue config = file_json("rope/config.json");
  EXPECT_EQ(config.string("pe"), "rope");
  EXPECT_EQ(config.at("run").integer("steps"), 3);
  EXPECT_EQ(config.at("model").integer("width"), 8);
}

TEST_F(Train, DivergenceStopsWithTheStepAndSavesNothing) {
  const Finished result =
      tally(tiny("run", "cope", "--steps=50 --save-every=1 --optimiser.clip=0 --optimiser.lr=1e18"));
  EXPECT_EQ(result.code, 3);
  expect_parts(result.err, {"[train] step ", "is not finite"});
  EXPECT_FALSE(exists("run/results.json"));
  EXPECT_FALSE(holds(file("run/metrics.jsonl"), ":nan")) << "a number that is none";
  // The folder records that the run diverged, at which step and why.
  const auto metrics = metrics_of(folder_ / "run");
  const JsonValue last = parse_json(metrics.back(), {}, "metrics");
  EXPECT_EQ(formatted("tally: {}\n", last.string("diverged")), result.err);
  expect_parts(result.err, {formatted("step {}:", last.integer("step"))});
  expect_parts(done("report run"), {"0 of 1, 1 diverged"});
  // All saved checkpoints are finite: the run resumes, and diverges again.
  EXPECT_EQ(tally("resume run --quiet").code, 3);
  EXPECT_EQ(metrics_of(folder_ / "run"), metrics);
}

TEST_F(Train, ARunThatRecoversHasNotDiverged) {
  ASSERT_EQ(tally(tiny("run", "none", "--optimiser.clip=0 --optimiser.lr=1e30")).code, 3);
  ASSERT_TRUE(holds(file("run/metrics.jsonl"), "diverged"));
  done("resume run --optimiser.lr=1e-3");
  EXPECT_FALSE(holds(file("run/metrics.jsonl"), "diverged"));
  EXPECT_FALSE(holds(done("report run"), "diverged"));
}

TEST_F(Train, DebugNanNamesTheOperationAndItsPlace) {
  refused(tiny("run", "cope", "--steps=50 --optimiser.clip=0 --optimiser.lr=1e30 --debug-nan"),
          "in blocks.0.attention: [linear] the result", 3);
  // A run that does not diverge is the same with and without the check.
  done(tiny("plain", "cope"));
  done(tiny("watched", "cope", "--debug-nan"));
  expect_same_run(folder_ / "watched", folder_ / "plain");
}

TEST_F(Train, ProfileIsATableAndATrace) {
  expect_parts(done(tiny("run", "cope", "--profile=trace.json")),
               {"operation", "calls", "bytes", "linear backward", "attention"});
  const JsonValue trace = file_json("trace.json");
  ASSERT_GT(trace.elements("traceEvents").size(), 100U);
  double last = 0;
  for (const JsonValue& event : trace.elements("traceEvents")) {
    EXPECT_EQ(event.string("ph"), "X");
    EXPECT_GE(event.real("ts"), last);
    EXPECT_GE(event.real("dur"), 0);
    last = event.real("ts");
  }
}

}  // namespace tally::testing::train_test
