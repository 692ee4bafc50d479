// tally reproduce: the runs of a table, killed and resumed, and the resulting page.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tasks/results/reproduction.hpp"
#include "tasks/runs/run_folder.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace reproduce_test {

namespace fs = std::filesystem;

// Figure 5 with models that train in milliseconds.
std::vector<std::string> words(const std::string& runs, const std::vector<std::string>& more = {}) {
  std::vector<std::string> all{"reproduce", "figure5", "--dir", runs, "--seeds=1..2", "--threads=1"};
  for (const char* change :
       {"task.length=16", "model.width=8", "model.heads=2", "batch=4", "steps=40", "optimiser.warmup=0", "eval-every=4",
        "save-every=4", "task.eval-count=6", "task.sparse-count=5", "task.dense-count=4", "eval-count=5"}) {
    all.insert(all.end(), {"--set", change});
  }
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// The table without its path.
std::string table_of(const Finished& finished) {
  JsonValue json = parse_json(finished.out, {.max_depth = 16, .max_values = 10'000}, "reproduce");
  for (const char* elsewhere : {"folder", "page", "picture"}) {
    if (json.contains(elsewhere)) json.remove(elsewhere);
  }
  return write_json(json, 2);
}

TEST(Reproduce, KilledTwiceItEndsWithTheSameTable) {
  const TemporaryFolder folder;
  const Finished whole = run_tally(words(folder / "whole", {"--json"}), folder);
  ASSERT_EQ(whole.code, 0) << whole.err;

  std::vector<std::string> again = words(folder / "again", {"--json", "--jobs=1"});
  again.insert(again.begin(), TALLY_RUNNER);
  const auto finished_runs = [&] {
    int count = 0;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder / "again/flip-flop", error)) {
      count += fs::exists(entry.path() / "results.json") ? 1 : 0;
    }
    return count;
  };
  int before = 0;
  for (const int signal : {SIGKILL, SIGTERM}) {
    const pid_t process = start_program(again, folder, "killed");
    EXPECT_TRUE(comes_true([&] { return finished_runs() > before; }));
    send_signal(process, signal);
    EXPECT_EQ(finish_program(process, folder, "killed").code, signal == SIGKILL ? 137 : 143);
    before = finished_runs();
    EXPECT_LT(before, 6) << "nothing was left to resume";
  }
  const Finished resumed = run_tally(words(folder / "again", {"--json"}), folder);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(table_of(resumed), table_of(whole));
  const std::string name = "/flip-flop/" + fs::directory_iterator(folder / "again/flip-flop")->path().stem().string();
  expect_same_run(folder / ("again" + name), folder / ("whole" + name));
}

TEST(Reproduce, TrainsAPartOfATableWhereThatIsAsked) {
  const TemporaryFolder folder;
  const auto runs = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all{"reproduce", "encodings", "--dir", folder / "runs", "--seeds=1", "--dry-run"};
    all.insert(all.end(), more.begin(), more.end());
    return run_tally(all, folder);
  };
  const Finished part = runs({"--rows=cope,absolute+hard", "--tasks=mqar,flip-flop"});
  EXPECT_EQ(part.code, 0) << part.err;
  for (const char* run : {"flip-flop/cope-seed1", "mqar-brief/cope-seed1", "flip-flop/absolute+hard-seed1"}) {
    EXPECT_NE(part.out.find(run), std::string::npos) << run << "\n" << part.out;
  }
  EXPECT_EQ(std::ranges::count(part.out, '\n'), 1 + 4) << "a line of what is there, then the runs\n" << part.out;

  const Finished commas = run_tally({"reproduce", "table7", "--dir", folder / "runs", "--seeds=1", "--dry-run",
                                     "--rows=cope-mlp, first layer", "--rows=rope 256 (64) 2/4"},
                                    folder);
  EXPECT_EQ(commas.code, 0) << commas.err;
  EXPECT_EQ(std::ranges::count(commas.out, '\n'), 1 + 2) << commas.out;

  const Finished no_row = runs({"--rows=cop"}), no_task = runs({"--tasks=mqar,flipflop"});
  EXPECT_EQ(no_row.code, 2);
  EXPECT_NE(no_row.err.find("[reproduce] encodings has no row 'cop'; did you mean 'cope'?"), std::string::npos)
      << no_row.err;
  EXPECT_EQ(no_task.code, 2);
  EXPECT_NE(no_task.err.find("no column of the task 'flipflop'; did you mean 'flip-flop'?"), std::string::npos)
      << no_task.err;
}

TEST(Reproduce, WritesAPageWithItsPicture) {
  const TemporaryFolder folder;
  const Finished dry = run_tally(words(folder / "runs", {"--dry-run"}), folder);
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_FALSE(fs::exists(folder / "runs")) << "a dry run writes nothing";
  for (const std::string encoding : {"absolute", "rope", "cope"}) {
    for (const char* end : {"eval-count=5-seed1: waiting\n", "eval-count=5-seed2: waiting\n"}) {
      const std::size_t run = dry.out.find("/flip-flop/" + encoding);
      ASSERT_NE(run, std::string::npos) << encoding << "\n" << dry.out;
      EXPECT_NE(dry.out.find(end, run), std::string::npos) << encoding << "\n" << dry.out;
    }
  }

  const Finished finished = run_tally(words(folder / "runs", {"--out", folder / "page.md"}), folder);
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(holds(finished.out, "done in")) << finished.out;
  EXPECT_TRUE(holds(finished.out, " left")) << "time left is told: " << finished.out;
  const std::string page = read_file(folder / "page.md");
  for (const char* part : {"REDUCED", "CHANGED: task.length=16", "![Flip-flop: error while training](page.svg)",
                           "tally reproduce figure5 --scale quick --seeds 1..2 --set task.length=16", "Trained on: ",
                           "Runs: 6 finished", "This call: 6 runs trained in ", " at a time with 1 thread each, on ",
                           "\n- flip-flop, preset quick: length 128, 64 wide", " task.length=128 "}) {
    EXPECT_TRUE(holds(page, part)) << part << "\n" << page;
  }
  EXPECT_TRUE(holds(page, formatted(" --dir {}\n```", folder / "runs"))) << "the same folder, and so the same page\n"
                                                                         << page;
  EXPECT_FALSE(holds(page, "reading.md"));
  write_file(folder / "reading.md", "");
  EXPECT_TRUE(holds(read_file(folder / "page.svg"), "ood-sparse"));
  // No run is left.
  const Finished again = run_tally(words(folder / "runs", {"--out", folder / "page.md"}), folder);
  EXPECT_TRUE(holds(again.out, "6 of 6 runs are finished")) << again.out;
  EXPECT_TRUE(holds(read_file(folder / "page.md"), "\nAgreement with the paper: [reading.md](reading.md)\n"));
}

// Absolute positions have rows up to the longest split; the sparse one is longer than any training sequence.
TEST(Reproduce, RowsThatNoTrainingReachesAreMarked) {
  const TemporaryFolder folder;
  const Reproduction& table = find_reproduction("table2");
  const ReproductionSetting setting{Scale::quick, {1, 2}, ""};
  constexpr std::size_t copy = 2;  // the first column of selective copy: in distribution, dense, sparse
  for (const std::size_t row : {0u, 1u}) {
    for (const std::int64_t seed : setting.seeds) {
      const auto run = run_of(table, table.rows[row], table.columns[copy], setting, seed);
      const RunFolder made = RunFolder::create(folder / run->name, run->config, false);
      JsonValue results = JsonValue::array();
      for (const char* split : {"in-distribution", "ood-dense", "ood-sparse"}) {
        Evaluation e;
        e.split = split;
        e.scored = e.sequences = 10;
        results.push(evaluation_json(run->config.run.steps, e));
      }
      made.write_results(JsonValue::object({{"best_step", 1}, {"evaluations", std::move(results)}}));
      rewrite_metrics(made.metrics_path(), {RunRecord{JsonValue::object({{"run", "tally"}})}});
    }
  }
  const Reproduced result = reproduced(table, setting, folder.path().string());
  ASSERT_EQ(result.runs.at(RunState::finished), 4) << (result.problems.empty() ? "" : result.problems[0]);
  for (const std::size_t row : {0u, 1u}) {
    for (const std::size_t column : {copy, copy + 1, copy + 2}) {
      EXPECT_EQ(result.cells[row][column].results.size(), 2u);
      const bool absolute_sparse = row == 0 && column == copy + 2;
      EXPECT_EQ(result.cells[row][column].untrained, absolute_sparse) << table.rows[row].label << " " << column;
    }
  }
}

TEST(Reproduce, CountsThatCannotBeAreNotShownAndTheOthersAre) {
  const TemporaryFolder folder;
  const std::string runs = folder / "runs";
  ASSERT_EQ(run_tally(words(runs, {"--rows=rope"}), folder).code, 0);
  std::string results;
  for (const auto& entry : fs::directory_iterator(runs + "/flip-flop")) {
    if (entry.is_directory()) results = entry.path().string() + "/results.json";
  }
  std::string damaged = read_file(results);
  const std::string count = "\"sequences\": ";
  ASSERT_NE(damaged.find(count), damaged.npos) << damaged;
  write_file(results, damaged.insert(damaged.find(count) + count.size(), "-"));
  const Finished shown = run_tally(words(runs, {"--rows=rope"}), folder);
  EXPECT_EQ(shown.code, 1);
  EXPECT_TRUE(holds(shown.out, "1 finished, 1 failed")) << shown.out;
  EXPECT_TRUE(holds(shown.out, " wrong sequences of -6")) << shown.out;
}

// A model of a terabyte is reported, and the runs that fit are still planned.
TEST(Reproduce, ARunThatDoesNotFitIsNamedAndPassedOver) {
  const TemporaryFolder folder;
  const std::string runs = folder / "runs";
  const std::vector<std::string> huge = words(runs, {"--rows=rope", "--set", "model.width=65536"});
  const auto with = [&](const char* option) {
    std::vector<std::string> all = huge;
    all.emplace_back(option);
    return run_tally(all, folder);
  };
  const Finished dry = with("--dry-run");
  EXPECT_EQ(dry.code, 1);
  EXPECT_TRUE(holds(dry.out, "-seed1: does not fit: [memory] this needs ")) << dry.out << dry.err;
  EXPECT_TRUE(holds(dry.out, "-seed2: does not fit: ")) << dry.out;
  const Finished trained = with("--quiet");
  EXPECT_EQ(trained.code, 1);
  EXPECT_TRUE(holds(trained.err, "-seed1: failed: [memory] this needs ")) << trained.err;
  EXPECT_TRUE(holds(trained.out, "0 of 2 runs finished, 2 failed")) << trained.out;
  for (const auto& entry : fs::directory_iterator(runs)) EXPECT_FALSE(entry.is_directory()) << entry.path();
}

// A run with unreadable results is reported and counted; the others are planned and trained.
TEST(Reproduce, ADamagedRunDoesNotStopTheOthers) {
  const TemporaryFolder folder;
  const std::string runs = folder / "runs";
  ASSERT_EQ(run_tally(words(runs, {"--rows=rope"}), folder).code, 0);
  for (const auto& entry : fs::directory_iterator(runs + "/flip-flop")) {
    if (entry.path().string().ends_with("-seed2")) fs::remove_all(entry.path());
  }
  std::string results;
  for (const auto& entry : fs::directory_iterator(runs + "/flip-flop")) {
    if (entry.is_directory()) results = entry.path().string() + "/results.json";
  }
  write_file(results, "{");
  const Finished dry = run_tally(words(runs, {"--rows=rope", "--dry-run"}), folder);
  EXPECT_EQ(dry.code, 1);
  EXPECT_TRUE(holds(dry.err, results)) << dry.err;
  EXPECT_TRUE(holds(dry.out, "-seed1: failed\n")) << dry.out;
  EXPECT_TRUE(holds(dry.out, "-seed2: waiting\n")) << dry.out;
  const Finished trained = run_tally(words(runs, {"--rows=rope"}), folder);
  EXPECT_EQ(trained.code, 1);
  EXPECT_TRUE(holds(trained.out, "1 of 2 runs finished, 1 failed")) << trained.out;
}

TEST(Reproduce, TheHelpNamesTheTablesThatTakeLonger) {
  const TemporaryFolder folder;
  const std::string help = run_tally({"reproduce", "--help"}, folder).out;
  const std::size_t scale = help.find("two hours a table"), next = help.find("--dir");
  ASSERT_TRUE(scale != help.npos && next != help.npos) << help;
  for (const Reproduction& table : reproduction_registry()) {
    const bool of_text = std::ranges::any_of(table.columns, [](const auto& column) { return column.text != nullptr; });
    EXPECT_TRUE(!of_text || holds(help.substr(scale, next - scale), table.name)) << table.name << "\n" << help;
  }
}

TEST(Reproduce, RefusesWhatIsNoTableAndWhatNoRunTakes) {
  const TemporaryFolder folder;
  const Finished unknown = run_tally({"reproduce", "tabel2"}, folder);
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(holds(unknown.err, "did you mean 'table2'?")) << unknown.err;
  const Finished change = run_tally({"reproduce", "figure5", "--set", "task.non-blanks=3"}, folder);
  EXPECT_EQ(change.code, 2);
  EXPECT_TRUE(holds(change.err, "figure5, absolute")) << change.err;
  EXPECT_TRUE(holds(change.err, "non-blanks")) << change.err;
  EXPECT_EQ(run_tally({"reproduce", "figure5", "--set", "steps"}, folder).code, 2);
  const Finished paper = run_tally({"reproduce", "last-sentence", "--scale", "paper"}, folder);
  EXPECT_EQ(paper.code, 2);
  EXPECT_TRUE(holds(paper.err, "last-sentence has no scale paper")) << paper.err;
  EXPECT_FALSE(fs::exists(folder / "runs")) << "nothing is begun";
}

}  // namespace reproduce_test
}  // namespace tally::testing
