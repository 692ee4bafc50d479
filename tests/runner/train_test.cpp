// `tally train`: its output and files.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "core/cpu/parallel.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace train_test {

JsonValue json_file(const std::string& path) { return parse_json(read_file(path), {}, path); }

TEST(Train, LeavesTheFilesOfARun) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  ASSERT_EQ(run_tally(tiny_training(run, "cope", {"--steps=8"}), folder).code, 0);
  EXPECT_EQ(names_of_checkpoints(run).back(), "step-00000008.safetensors");
  EXPECT_LE(checkpoints_of(run).size(), 3U);  // the last two and the best

  const JsonValue config = json_file(run + "/config.json");
  EXPECT_EQ(config.at("task").string("name"), "flip-flop");
  EXPECT_EQ(config.string("pe"), "cope");
  EXPECT_EQ(config.at("run").integer("steps"), 8);

  std::int64_t step = 0;
  const std::vector<std::string> lines = metrics_of(run);
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
  const JsonValue results = json_file(run + "/results.json");
  EXPECT_EQ(results.integer("steps"), 8);
  ASSERT_EQ(results.elements("evaluations").size(), 3U);
  EXPECT_EQ(results.elements("evaluations")[1].string("split"), "ood-sparse");
}

TEST(Train, ConfigurationComesFirst) {
  const TemporaryFolder folder;
  std::vector<std::string> words = tiny_training(folder / "run", "cope", {"--steps=1000000", "--eval-every=1000000"});
  words.insert(words.begin(), TALLY_RUNNER);
  const pid_t process = start_program(words, folder);
  EXPECT_TRUE(comes_true([&] { return std::filesystem::exists(folder / "run/metrics.jsonl"); }));
  EXPECT_EQ(json_file(folder / "run/config.json").string("pe"), "cope");
  send_signal(process, SIGKILL);
  finish_program(process, folder);
}

TEST(Train, PrintsTheConfigurationAndPlainLinesUnlessQuiet) {
  const TemporaryFolder folder;
  std::vector<std::string> words = tiny_training(folder / "run", "cope");
  const Finished quiet = run_tally(words, folder);
  std::erase(words, "--quiet");
  words[1] = folder / "loud";
  const Finished loud = run_tally(words, folder);
  for (const char* part : {"model.width=8", "next: 'tally inspect ", "parameters", "BLAS", "thread", "tokens/s",
                           "peak memory", "95% interval"}) {
    EXPECT_TRUE(holds(loud.out, part)) << part << "\n" << loud.out;
  }
  EXPECT_FALSE(holds(loud.out, "\r") || holds(loud.out, "\033")) << "no terminal, no redrawn line";
  EXPECT_FALSE(holds(loud.out, "model.norm=")) << "a default\n" << loud.out;
  EXPECT_FALSE(holds(quiet.out, "model.width")) << quiet.out;
  EXPECT_TRUE(holds(quiet.out, "ood-dense")) << quiet.out;

  words[1] = folder / "json";
  words.emplace_back("--json");
  const Finished json = run_tally(words, folder);
  EXPECT_EQ(parse_json(json.out.substr(0, json.out.size() - 1), {}, "stdout").integer("steps"), 4);
}

TEST(Train, NamesTheDeviceItRunsOn) {
  const TemporaryFolder folder;
  for (const std::string device : {"cpu", "cuda-host"}) {
    std::vector<std::string> words =
        tiny_training(folder / device, "none", {"--steps=1", "--eval-every=0", "--device=" + device});
    std::erase(words, "--quiet");
    const Finished result = run_tally(words, folder);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(holds(result.out, ", device " + device + ", BLAS ")) << result.out;
  }
}

TEST(Train, ADryRunRefusesWhatItLeavesOut) {
  const TemporaryFolder folder;
  const std::string out = folder / "x";
  const auto refused = [&](std::vector<std::string> words, const std::string& option) {
    words.insert(words.end(), {"--dry-run", option});
    const Finished result = run_tally(words, folder);
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.err,
              formatted("tally: {}: {} excludes --dry-run\n", words[0], option.substr(0, option.find('='))));
  };
  for (const std::string& option : {std::string("--force"), "--profile=" + out}) {
    refused(tiny_training(folder / "run", "cope"), option);
  }
  const Finished both = run_tally({"reproduce", "table2", "--dry-run", "--out=" + out + ".md"}, folder);
  EXPECT_EQ(both.code, 2);
  EXPECT_EQ(both.err, "tally: reproduce: --out excludes --dry-run\n");
}

TEST(Train, DryRunTellsAndStops) {
  const TemporaryFolder folder;
  std::vector<std::string> words = tiny_training(folder / "run", "cope");
  ASSERT_EQ(run_tally(words, folder).code, 0);
  words[1] = folder / "plan";
  words.emplace_back("--dry-run");
  EXPECT_EQ(run_tally(words, folder).code, 0);
  words.emplace_back("--json");
  const Finished result = run_tally(words, folder);
  EXPECT_EQ(result.code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "plan"));
  const JsonValue plan = parse_json(result.out.substr(0, result.out.size() - 1), {}, "stdout");
  EXPECT_EQ(plan.integer("parameters"), json_file(folder / "run/results.json").integer("parameters"));
  EXPECT_EQ(plan.integer("encoding_parameters"), 2 * 65 * 4);
  EXPECT_EQ(plan.integer("steps"), 4);
  EXPECT_EQ(plan.integer("tokens_per_step"), 64);
  EXPECT_GT(plan.real("memory_bytes"), 0);
  EXPECT_FALSE(plan.boolean("memory_at_most"));
  EXPECT_TRUE(plan.at("config") == json_file(folder / "run/config.json"));
}

// FIRE learns whether its bias depends only on the distance.
TEST(Train, DryRunReportsTimeAndLearnedMemory) {
  const TemporaryFolder folder;
  const std::vector<std::string> words{"train",          folder / "plan", "--task=flip-flop",
                                       "--preset=quick", "--pe=fire",     "--dry-run"};
  const Finished result = run_tally(words, folder);
  EXPECT_TRUE(holds(result.out, "\nmemory for tensors: at most ")) << result.out;
  EXPECT_TRUE(holds(result.out, "\ntime on this machine: about ")) << result.out;
}

// The error comes at the start, not when a split first has such a sequence, possibly at the end of the run.
TEST(Train, SequencesThatTheEncodingDoesNotTakeAreWrongUsage) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  const auto refused = [&](const std::vector<std::string>& words, const std::string& message) {
    const Finished result = run_tally(words, folder);
    EXPECT_EQ(result.code, 2) << words[0];
    EXPECT_TRUE(holds(result.err, message)) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_FALSE(std::filesystem::exists(run));
  };
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--dry-run"}}) {
    std::vector<std::string> words = tiny_training(run, "relative", {"--pe.distances=10"});
    words.insert(words.end(), more.begin(), more.end());
    refused(words, "the table has 10 distances, the sequence 16 tokens");
  }
  // Enough for training sequences, but not for ood-sparse.
  refused({"train", run, "--task=selective-copy", "--preset=quick", "--pe=relative", "--pe.distances=48"},
          "the table has 48 distances, the sequence 64 tokens");
  std::vector<std::string> sweep = tiny_training(run, "cope;relative", {"--pe.relative.distances=10", "--seeds=1"});
  sweep[0] = "sweep";
  refused(sweep, "the table has 10 distances, the sequence 16 tokens");

  ASSERT_EQ(run_tally(tiny_training(run, "relative", {"--pe.distances=16"}), folder).code, 0);
  const Finished resumed = run_tally({"resume", run, "--steps=8", "--task.length=20"}, folder);
  EXPECT_EQ(resumed.code, 2) << resumed.out;
  EXPECT_TRUE(holds(resumed.err, "the table has 16 distances, the sequence 20 tokens")) << resumed.err;
  EXPECT_EQ(json_file(run + "/config.json").at("run").integer("steps"), 4);
}

// 300 MiB of parameters are counted but not allocated.
TEST(Train, DryRunOfALargeModelTakesNoMemory) {
  const TemporaryFolder folder;
  const Finished result =
      run_tally({"train", "x", "--dry-run", "--json", "--task=flip-flop", "--pe=cope", "--length=16", "--batch=1",
                 "--eval-batch=1", "--model.width=1024", "--model.layers=6"},
                folder);
  // A block has 12 D^2 + 13 D and a table of 65 rows a quarter as wide; two embeddings of 5 rows and the last norm.
  constexpr std::int64_t width = 1024, parameters = 6 * (12 * width * width + 13 * width + 65 * width / 4) + 12 * width;
  EXPECT_TRUE(holds(result.out, "\"parameters\":" + std::to_string(parameters) + ",")) << result.out << result.err;
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
#ifndef TALLY_SANITIZED
  EXPECT_LT(usage.ru_maxrss, 250 * 1024) << "KiB";
#endif
}

TEST(Train, ThreadsDoNotChangeABit) {
  const TemporaryFolder folder;
  const std::vector<std::string> wide{"--length=64", "--model.width=32", "--batch=16", "--steps=6",
                                      "--model.dropout=0.1"};
  for (const char* threads : {"1", "2", "3"}) {
    std::vector<std::string> options = wide;
    options.push_back(std::string("--threads=") + threads);
    ASSERT_EQ(run_tally(tiny_training(folder / threads, "cope", options), folder).code, 0);
    expect_same_run(folder / threads, folder / "1");
  }
}

TEST(Train, AConfigurationFileMakesTheSameRun) {
  const TemporaryFolder folder;
  ASSERT_EQ(run_tally(tiny_training(folder / "run", "cope"), folder).code, 0);
  ASSERT_EQ(run_tally({"train", folder / "again", "--config", folder / "run/config.json"}, folder).code, 0);
  expect_same_run(folder / "again", folder / "run");
  ASSERT_EQ(
      run_tally({"train", folder / "rope", "--config", folder / "run/config.json", "--pe=rope", "--steps=3"}, folder)
          .code,
      0);
  const JsonValue config = json_file(folder / "rope/config.json");
  EXPECT_EQ(config.string("pe"), "rope");
  EXPECT_EQ(config.at("run").integer("steps"), 3);
  EXPECT_EQ(config.at("model").integer("width"), 8);
}

TEST(Train, DivergenceStopsWithTheStepAndSavesNothing) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  const Finished result = run_tally(
      tiny_training(run, "cope", {"--steps=50", "--save-every=1", "--optimiser.clip=0", "--optimiser.lr=1e18"}),
      folder);
  EXPECT_EQ(result.code, 3);
  EXPECT_TRUE(holds(result.err, "[train] step ") && holds(result.err, "is not finite")) << result.err;
  EXPECT_FALSE(std::filesystem::exists(run + "/results.json"));
  EXPECT_FALSE(holds(read_file(run + "/metrics.jsonl"), ":nan")) << "a number that is none";
  // The folder records that the run diverged, at which step and why.
  const auto last_line = [&] { return parse_json(metrics_of(run).back(), {}, "metrics"); };
  EXPECT_EQ(formatted("tally: {}\n", last_line().string("diverged")), result.err);
  EXPECT_TRUE(holds(result.err, formatted("step {}:", last_line().integer("step")))) << result.err;
  EXPECT_TRUE(holds(run_tally({"report", run}, folder).out, "0 of 1, 1 diverged"));
  const auto metrics = metrics_of(run);
  // All saved checkpoints are finite: the run resumes, and diverges again.
  EXPECT_EQ(run_tally({"resume", run, "--quiet"}, folder).code, 3);
  EXPECT_EQ(metrics_of(run), metrics);
  if (!checkpoints_of(run).empty()) {
    const Finished eval = run_tally({"eval", run, "--count=4"}, folder);
    EXPECT_FALSE(holds(eval.out, "nan") || holds(eval.out, "inf")) << eval.out;
  }
}

TEST(Train, ARunThatRecoversHasNotDiverged) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  ASSERT_EQ(run_tally(tiny_training(run, "none", {"--optimiser.clip=0", "--optimiser.lr=1e30"}), folder).code, 3);
  ASSERT_TRUE(holds(read_file(run + "/metrics.jsonl"), "diverged"));
  EXPECT_EQ(run_tally({"resume", run, "--optimiser.lr=1e-3"}, folder).code, 0);
  EXPECT_FALSE(holds(read_file(run + "/metrics.jsonl"), "diverged"));
  EXPECT_FALSE(holds(run_tally({"report", run}, folder).out, "diverged"));
}

TEST(Train, DebugNanNamesTheOperationAndItsPlace) {
  const TemporaryFolder folder;
  const Finished result = run_tally(
      tiny_training(folder / "run", "cope", {"--steps=50", "--optimiser.clip=0", "--optimiser.lr=1e30", "--debug-nan"}),
      folder);
  EXPECT_EQ(result.code, 3);
  EXPECT_TRUE(holds(result.err, "in blocks.0.attention: [linear] the result")) << result.err;
  // A run that does not diverge is the same with and without the check.
  ASSERT_EQ(run_tally(tiny_training(folder / "plain", "cope"), folder).code, 0);
  ASSERT_EQ(run_tally(tiny_training(folder / "watched", "cope", {"--debug-nan"}), folder).code, 0);
  expect_same_run(folder / "watched", folder / "plain");
}

TEST(Train, ProfileIsATableAndATrace) {
  const TemporaryFolder folder;
  const Finished result =
      run_tally(tiny_training(folder / "run", "cope", {"--profile=" + (folder / "trace.json")}), folder);
  ASSERT_EQ(result.code, 0) << result.err;
  for (const char* part : {"operation", "calls", "bytes", "linear backward", "attention"}) {
    EXPECT_TRUE(holds(result.out, part)) << part << "\n" << result.out;
  }
  const JsonValue trace = parse_json(read_file(folder / "trace.json"), {.max_values = 1'000'000}, "trace");
  ASSERT_GT(trace.elements("traceEvents").size(), 100U);
  double last = 0;
  for (const JsonValue& event : trace.elements("traceEvents")) {
    EXPECT_EQ(event.string("ph"), "X");
    EXPECT_GE(event.real("ts"), last);
    EXPECT_GE(event.real("dur"), 0);
    last = event.real("ts");
  }
}

}  // namespace train_test
}  // namespace tally::testing
