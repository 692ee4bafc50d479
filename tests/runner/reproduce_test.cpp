// tally reproduce: the runs of a table, killed and resumed, and the resulting page.
#include <gtest/gtest.h>

#include "tasks/results/reproduction.hpp"
#include "tasks/runs/run_folder.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::reproduce_test {

namespace fs = std::filesystem;

class Reproduce : public Program {
 protected:
  // Figure 5 with models that train in milliseconds.
  static std::string figure5(const std::string& runs, const std::string& more = "") {
    std::string line = "reproduce figure5 --seeds=1..2 --threads=1 --dir " + runs;
    for (const char* change : {"task.length=16", "model.width=8", "model.heads=2", "batch=4", "steps=40",
                               "optimiser.warmup=0", "eval-every=4", "save-every=4", "task.eval-count=6",
                               "task.sparse-count=5", "task.dense-count=4", "eval-count=5"}) {
      line += formatted(" --set {}", change);
    }
    return line + " " + more;
  }
  // The folders of runs in a folder.
  std::vector<std::string> runs_in(const std::string& folder) const {
    std::vector<std::string> names;
    std::error_code none_yet;
    for (const auto& entry : fs::directory_iterator(folder_ / folder, none_yet)) {
      if (entry.is_directory()) names.push_back(folder + "/" + entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }
  // The table without its path.
  JsonValue table(const std::string& runs) {
    JsonValue all = json(figure5(runs));
    all.remove("folder");
    return all;
  }
};

TEST_F(Reproduce, KilledTwiceItEndsWithTheSameTable) {
  const JsonValue whole = table("whole");
  const auto finished = [&] {
    return std::ranges::count_if(runs_in("again/flip-flop"),
                                 [&](const std::string& run) { return exists(run + "/results.json"); });
  };
  std::ptrdiff_t before = 0;
  for (const int signal : {SIGKILL, SIGTERM}) {
    const pid_t process = start(figure5("again", "--json --jobs=1"), "killed");
    EXPECT_TRUE(comes_true([&] { return finished() > before; }));
    send_signal(process, signal);
    EXPECT_EQ(finish(process, "killed").code, signal == SIGKILL ? 137 : 143);
    before = finished();
    EXPECT_LT(before, 6) << "nothing was left to resume";
  }
  EXPECT_EQ(write_json(table("again"), 2), write_json(whole, 2));
  expect_same_run(folder_ / runs_in("again/flip-flop")[0], folder_ / runs_in("whole/flip-flop")[0]);
}

TEST_F(Reproduce, TrainsAPartOfATableWhereThatIsAsked) {
  const std::string encodings = "reproduce encodings --dir runs --seeds=1 --dry-run ";
  const std::string part = done(encodings + "--rows=cope,absolute+hard --tasks=mqar,flip-flop");
  expect_parts(part, {"flip-flop/cope-seed1", "mqar-brief/cope-seed1", "flip-flop/absolute+hard-seed1"});
  EXPECT_EQ(std::ranges::count(part, '\n'), 1 + 4) << "a line of what is there, then the runs\n" << part;
  const std::string commas = done(
      "reproduce table7 --dir runs --seeds=1 --dry-run "
      "--rows='cope-mlp, first layer' --rows='rope 256 (64) 2/4'");
  EXPECT_EQ(std::ranges::count(commas, '\n'), 1 + 2) << commas;
  refused({{encodings + "--rows=cop", "[reproduce] encodings has no row 'cop'; did you mean 'cope'?"},
           {encodings + "--tasks=mqar,flipflop", "no column of the task 'flipflop'; did you mean 'flip-flop'?"}});
}

TEST_F(Reproduce, WritesAPageWithItsPicture) {
  expect_parts(done(figure5("runs", "--dry-run")), {"/flip-flop/absolute", "/flip-flop/rope", "/flip-flop/cope",
                                                    "eval-count=5-seed1: waiting\n", "eval-count=5-seed2: waiting\n"});
  EXPECT_FALSE(exists("runs")) << "a dry run writes nothing";
  expect_parts(done(figure5("runs", "--out page.md")), {"done in", " left"});
  const std::string page = file("page.md");
  expect_parts(page, {"REDUCED", "CHANGED: task.length=16", "![Flip-flop: error while training](page.svg)",
                      "tally reproduce figure5 --scale quick --seeds 1..2 --set task.length=16", "Trained on: ",
                      "Runs: 6 finished", "This call: 6 runs trained in ", " at a time with 1 thread each, on ",
                      "\n- flip-flop, preset quick: length 128, 64 wide", " task.length=128 ", " --dir runs\n```"});
  EXPECT_FALSE(holds(page, "reading.md"));
  write_file(folder_ / "reading.md", "");
  expect_parts(file("page.svg"), {"ood-sparse"});
  // No run is left.
  expect_parts(done(figure5("runs", "--out page.md")), {"6 of 6 runs are finished"});
  expect_parts(file("page.md"), {"\nAgreement with the paper: [reading.md](reading.md)\n"});
}

// Absolute positions have rows up to the longest split; the sparse one is longer than any training sequence.
TEST_F(Reproduce, RowsThatNoTrainingReachesAreMarked) {
  const Reproduction& table = find_reproduction("table2");
  const ReproductionSetting setting{Scale::quick, {1, 2}, ""};
  constexpr std::size_t copy = 2;  // the first column of selective copy: in distribution, dense, sparse
  for (const std::size_t row : {0u, 1u}) {
    for (const std::int64_t seed : setting.seeds) {
      const auto run = run_of(table, table.rows[row], table.columns[copy], setting, seed);
      const RunFolder made = RunFolder::create(folder_ / run->name, run->config, false);
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
  const Reproduced result = reproduced(table, setting, folder_.path().string());
  ASSERT_EQ(result.runs.at(RunState::finished), 4) << (result.problems.empty() ? "" : result.problems[0]);
  for (const std::size_t row : {0u, 1u}) {
    for (const std::size_t column : {copy, copy + 1, copy + 2}) {
      EXPECT_EQ(result.cells[row][column].results.size(), 2u);
      const bool absolute_sparse = row == 0 && column == copy + 2;
      EXPECT_EQ(result.cells[row][column].untrained, absolute_sparse) << table.rows[row].label << " " << column;
    }
  }
}

// A run with unreadable or impossible results is reported and counted; the others are shown, planned and trained.
TEST_F(Reproduce, ADamagedRunDoesNotStopTheOthers) {
  const std::string rope = figure5("runs", "--rows=rope");
  done(rope);
  const std::vector<std::string> runs = runs_in("runs/flip-flop");
  ASSERT_EQ(runs.size(), 2u);
  const std::string path = folder_ / runs[0] + "/results.json", count = "\"sequences\": ";
  std::string damaged = read_file(path);
  write_file(path, damaged.insert(damaged.find(count) + count.size(), "-"));
  const Finished shown = tally(rope);
  EXPECT_EQ(shown.code, 1);
  expect_parts(shown.out, {"1 finished, 1 failed", " wrong sequences of -6"});

  fs::remove_all(folder_ / runs[1]);
  write_file(path, "{");
  const Finished dry = tally(rope + " --dry-run");
  EXPECT_EQ(dry.code, 1);
  expect_parts(dry.err, {runs[0] + "/results.json"});
  expect_parts(dry.out, {"-seed1: failed; ", "-seed2: waiting\n"});
  expect_parts(tally(rope).out, {"1 of 2 runs finished, 1 failed"});
}

// A model of a terabyte is reported, and the runs that fit are still planned.
TEST_F(Reproduce, ARunThatDoesNotFitIsNamedAndPassedOver) {
  const std::string huge = figure5("runs", "--rows=rope --set model.width=65536 ");
  const Finished dry = tally(huge + "--dry-run"), trained = tally(huge + "--quiet");
  EXPECT_EQ(dry.code + trained.code, 2);
  expect_parts(dry.out, {"-seed1: does not fit: [memory] this needs ", "-seed2: does not fit: "});
  expect_parts(trained.err, {"-seed1: failed: [memory] this needs "});
  expect_parts(trained.out, {"0 of 2 runs finished, 2 failed"});
  EXPECT_TRUE(runs_in("runs").empty());
}

TEST_F(Reproduce, TheHelpNamesTheTablesThatTakeLonger) {
  const std::string help = done("reproduce --help");
  const std::size_t scale = help.find("two hours a table"), next = help.find("--dir");
  ASSERT_TRUE(scale != help.npos && next != help.npos) << help;
  for (const Reproduction& table : reproduction_registry()) {
    const bool of_text = std::ranges::any_of(table.columns, [](const auto& column) { return column.text != nullptr; });
    EXPECT_TRUE(!of_text || holds(help.substr(scale, next - scale), table.name)) << table.name << "\n" << help;
  }
}

TEST_F(Reproduce, RefusesWhatIsNoTableAndWhatNoRunTakes) {
  refused({{"reproduce tabel2", "did you mean 'table2'?"},
           {"reproduce figure5 --set task.non-blanks=3", "figure5, absolute"},
           {"reproduce figure5 --set steps", "steps"},
           {"reproduce last-sentence --scale paper", "last-sentence has no scale paper"}});
  EXPECT_FALSE(exists("runs")) << "nothing is begun";
}

}  // namespace tally::testing::reproduce_test
