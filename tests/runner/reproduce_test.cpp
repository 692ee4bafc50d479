// tally reproduce: the runs of a table, killed and resumed, and the resulting page.
#include <gtest/gtest.h>

#include "tasks/results/reproduction.hpp"
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

TEST_F(Reproduce, RefusesWhatIsNoTableAndWhatNoRunTakes) {
  refused({{"reproduce tabel2", "did you mean 'table2'?"},
           {"reproduce figure5 --set task.non-blanks=3", "figure5, absolute"},
           {"reproduce figure5 --set steps", "steps"},
           {"reproduce last-sentence --scale paper", "last-sentence has no scale paper"}});
  EXPECT_FALSE(exists("runs")) << "nothing is begun";
}

}  // namespace tally::testing::reproduce_test
