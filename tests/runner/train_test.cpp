// `tally train`: its output and files, and the progress line on a pseudo-terminal.
#include <gtest/gtest.h>

#include "core/io/file_descriptor.hpp"
#include "tasks/command_line/training.hpp"
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

struct Seen {
  int code = -1;
  std::string bytes;  // received by the terminal
};

// Runs tally with stdout on a new pseudo-terminal, after a shell command.
Seen run_on_terminal(const std::string& line, const TemporaryFolder& folder, const std::string& before = ":") {
  Seen seen;
  const FileDescriptor terminal(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  const int number = terminal.number();
  char name[64];
  if (!terminal.open() || grantpt(number) != 0 || unlockpt(number) != 0 || ptsname_r(number, name, sizeof name) != 0) {
    ADD_FAILURE() << "no pseudo-terminal";
    return seen;
  }
  const pid_t process = start_program(
      {"/bin/sh", "-c", before + "; exec > '" + std::string(name) + "'; exec '" TALLY_RUNNER "' " + line}, folder);
  // Reads fail before the other side is opened, and after it is closed.
  char buffer[4096];
  bool opened = false;
  EXPECT_TRUE(comes_true([&] {
    const ssize_t count = read(number, buffer, sizeof buffer);
    if (count > 0) seen.bytes.append(buffer, static_cast<std::size_t>(count));
    opened = opened || count > 0;
    return count <= 0 && opened;
  }));
  seen.code = finish_program(process, folder).code;
  return seen;
}

TEST(Terminal, OneLineIsRedrawnAndClearedAtTheEnd) {
  const TemporaryFolder folder;
  const Seen seen =
      run_on_terminal(loud(tiny("run", "cope", "--steps=1000 --eval-every=0 --save-every=0 --log-every=1000")), folder);
  ASSERT_EQ(seen.code, 0) << seen.bytes;

  std::size_t drawn = 0, last = 0;
  const std::string begin = "\r\033[K\033[?7lstep ", end = " left\033[?7h";
  for (std::size_t at = seen.bytes.find(begin); at != std::string::npos; at = seen.bytes.find(begin, at + 1)) {
    ++drawn;
    last = at;
    const std::string line = seen.bytes.substr(at + begin.size(), seen.bytes.find(end, at) - at - begin.size());
    EXPECT_FALSE(holds(line, "\n") || holds(line, "\r")) << line;
    expect_parts(line, {"/1000  loss ", "  error ", "  lr ", "  grad ", " tokens/s  "});
  }
  EXPECT_GE(drawn, 2U) << seen.bytes;
  EXPECT_TRUE(seen.bytes.substr(last + begin.size()).starts_with("1000/1000  loss ")) << seen.bytes;

  // The line is cleared before the next text.
  const std::size_t cleared = seen.bytes.find("\r\033[K", last + 1);
  ASSERT_NE(cleared, std::string::npos);
  const std::string after = seen.bytes.substr(cleared);
  EXPECT_FALSE(holds(after, "/1000  loss ")) << after;
  expect_parts(after, {"\r\033[Kstep 1000  in-distribution: ", "step 1000  ood-dense: ", "\ndone in "});
}

TEST(Terminal, ANarrowLineLosesItsLeastImportantFields) {
  const std::vector<ProgressField> fields{{"step 1/9", 4}, {"lr 0.001", 1}, {"loss 0.5", 2}, {"3.0 s left", 3}};
  EXPECT_EQ(progress_line(fields, 0), "step 1/9  lr 0.001  loss 0.5  3.0 s left");
  EXPECT_EQ(progress_line(fields, 40), progress_line(fields, 0));
  EXPECT_EQ(progress_line(fields, 39), "step 1/9  loss 0.5  3.0 s left");
  EXPECT_EQ(progress_line(fields, 20), "step 1/9  3.0 s left");
  EXPECT_EQ(progress_line(fields, 3), "step 1/9");
}

TEST(Terminal, ColoursAreForTerminalsThatShowThem) {
  const TemporaryFolder folder;
  ASSERT_EQ(run_tally(words_of(tiny("run", "cope")), folder).code, 0);
  const std::string coloured = "unset NO_COLOR; TERM=xterm";
  EXPECT_TRUE(holds(run_on_terminal("report run", folder, coloured).bytes, "\n\033[1m| encoding"));
  EXPECT_TRUE(holds(run_on_terminal("eval run", folder, coloured).bytes, "%\033[0m wrong ("));
  for (const char* before : {"export NO_COLOR=1", "export TERM=dumb"}) {
    EXPECT_FALSE(holds(run_on_terminal("report run", folder, before).bytes, "\033")) << before;
  }
  EXPECT_FALSE(holds(run_tally({"report", "run"}, folder).out, "\033"));
}

}  // namespace tally::testing::train_test
