// tally report: means and standard deviations over seeds, groups by differing settings, and that every run is counted.
// The runs are written by hand, so that the numbers are known.
#include "tasks/results/report.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

#include "core/error.hpp"
#include "tasks/runs/run_folder.hpp"
#include "tests/runner/program.hpp"

namespace tally::testing::report_test {

class Reports : public Program {
 protected:
  static RunConfig config_of(const std::string& task, const std::string& encoding, std::int64_t seed) {
    RunConfig config = RunConfig::make(task, encoding, "quick");
    config.run.seed = seed;
    return config;
  }

  static Measurement evaluation(std::int64_t step, const std::string& split, std::int64_t wrong, std::int64_t scored,
                                std::int64_t wrong_sequences = 1) {
    Evaluation e;
    e.split = split;
    e.wrong = wrong;
    e.scored = scored;
    e.wrong_sequences = wrong_sequences;
    e.sequences = 10;
    return {step, e};
  }

  // A run with these numbers of wrong tokens, out of 100, at steps 50 and 100, on two splits. It is finished by
  // default.
  void add(const std::string& name, const RunConfig& config, std::int64_t before, std::int64_t sparse,
           bool finished = true) {
    const RunFolder folder = RunFolder::create(folder_ / name, config, false);
    std::vector<MetricsRecord> records{RunRecord{JsonValue::object({{"run", "tally"}})}};
    records.push_back(evaluation(50, "in-distribution", before, 100));
    records.push_back(evaluation(50, "ood-sparse", before, 100));
    if (finished) {
      JsonValue results = JsonValue::array();
      for (const Measurement& end : {evaluation(100, "in-distribution", 0, 100, 0),
                                     evaluation(100, "ood-sparse", sparse, 100, sparse > 0 ? 5 : 0)}) {
        records.push_back(end);
        results.push(evaluation_json(end.step, end.evaluation));
      }
      folder.write_results(JsonValue::object({{"best_step", 100}, {"evaluations", std::move(results)}}));
    }
    rewrite_metrics(folder.metrics_path(), records);
  }

  // A record of these runs in sweep.json.
  void write_sweep(const std::vector<std::array<std::string, 2>>& runs) {
    JsonValue entries = JsonValue::array();
    for (const auto& [seed, state] : runs) {
      const RunConfig config = config_of("flip-flop", "cope", std::stoi(seed));
      entries.push(JsonValue::object({{"name", "cope-seed" + seed}, {"state", state}, {"config", config.to_json()}}));
    }
    write_file(folder_ / "sweep.json", write_json(JsonValue::object({{"format", 1}, {"runs", std::move(entries)}})));
  }
  std::string text() { return report_text(make_report({sweep_})); }

  std::string sweep_ = folder_.path().string();
};

TEST_F(Reports, AForeignModelBelowIsNoRun) {
  add("cope-seed1", config_of("flip-flop", "cope", 1), 40, 2);
  std::filesystem::create_directory(folder_ / "gpt2");
  write_file(folder_ / "gpt2/config.json", R"({"model_type": "gpt2", "activation_function": "gelu_new"})");
  const Report report = make_report({sweep_});
  EXPECT_EQ(report.runs.size(), 1u);
  EXPECT_TRUE(report.problems.empty()) << report.problems.front();
}

TEST_F(Reports, MeanDeviationAndCounts) {
  add("cope-seed1", config_of("flip-flop", "cope", 1), 40, 2);
  add("cope-seed2", config_of("flip-flop", "cope", 2), 20, 6);
  add("deeper/rope-seed1", config_of("flip-flop", "rope", 1), 40, 30);
  const Report report = make_report({sweep_});
  ASSERT_EQ(report.tasks.size(), 1u);
  ASSERT_EQ(report.tasks[0].groups.size(), 2u);
  const std::string text = report_text(report);
  // Mean 4%, standard deviation sqrt(8)% = 2.83; Wilson's interval of 8 in 200.
  expect_parts(
      text, {"| cope     | 0% (0)          | 4% (2.83)  | 2    |", "| rope     | 0%              | 30%        | 1    |",
             "8 of 200 (2.04-7.69%)", "10 of 20 (29.9-70.1%)"});  // sequences

  const JsonValue json = report_json(report);
  const JsonValue& sparse = json.elements("tables")[0].elements("rows")[0].at("ood-sparse");
  EXPECT_NEAR(sparse.real("mean"), 0.04, 1e-12);
  EXPECT_NEAR(sparse.real("deviation"), std::sqrt(8e-4), 1e-12);
  EXPECT_EQ(sparse.integer("n"), 2);
  const JsonValue& counts = json.elements("tables")[1].elements("rows")[1];
  EXPECT_EQ(counts.string("split"), "ood-sparse");
  EXPECT_NEAR(counts.at("wrong sequences").real("mean"), 0.5, 1e-12);
}

TEST_F(Reports, SeveralTasksAreSeenInOneTable) {
  const auto of = [](const std::string& task, const std::string& preset, const std::string& encoding, int seed) {
    RunConfig config = RunConfig::make(task, encoding, preset);
    config.run.seed = seed;
    return config;
  };
  add("cope-seed1", of("flip-flop", "quick", "cope", 1), 40, 2);
  EXPECT_TRUE(overview_tables(make_report({sweep_})).empty()) << "one task is a table already";
  add("cope-seed2", of("flip-flop", "quick", "cope", 2), 20, 6);
  add("words/rope", of("group-word", "quick", "rope", 1), 20, 30);
  add("words/cope", of("group-word", "quick-a5", "cope", 1), 20, 0);
  add("words/cope-2", of("group-word", "quick-a5", "cope", 2), 20, 0, false);
  const Report report = make_report({sweep_});
  // Out of distribution: 2% and 6% of tokens, and half of the sequences, since group-word is scored by sequence.
  expect_parts(text_of(overview_tables(report)),
               {"| encoding | flip-flop | group-word quick-a5 | group-word quick |",
                "| cope     | 0% (0, 2) | 0% (1)              | -                |",
                "| cope     | 4% (2.83, 2) | 0% (1)              | -                |",
                "| rope     | -            | -                   | 50% (1)          |",
                "whole sequences of group-word quick-a5, group-word quick"});
}

TEST_F(Reports, GroupsBySettingsThatDiffer) {
  for (const std::int64_t layers : {1, 2}) {
    for (const std::int64_t seed : {1, 2}) {
      RunConfig config = config_of("flip-flop", "alibi", seed);
      config.model.layers = layers;
      add(formatted("alibi-{}-{}", layers, seed), config, 10, 10 * layers);
    }
  }
  const Report report = make_report({sweep_});
  ASSERT_EQ(report.tasks.size(), 1u);
  ASSERT_EQ(report.tasks[0].groups.size(), 2u);
  EXPECT_EQ(report.tasks[0].groups[0].label(), "alibi model.layers=1");
  EXPECT_EQ(report.tasks[0].groups[1].label(), "alibi model.layers=2");
  expect_parts(report_text(report), {"| encoding | model.layers | in-distribution | ood-sparse | runs |"});
}

TEST_F(Reports, WhatIsNotFinishedIsCounted) {
  add("cope-seed1", config_of("flip-flop", "cope", 1), 10, 2);
  add("cope-seed2", config_of("flip-flop", "cope", 2), 10, 0, false);
  add("cope-seed3", config_of("flip-flop", "cope", 3), 10, 0, false);
  write_sweep({{"3", "diverged"}, {"4", "waiting"}});
  expect_parts(text(), {"1 of 4, 1 diverged, 1 unfinished, 1 waiting", "| 2%         |"});
  // Without its sweep, a run does not show whether it will be resumed.
  expect_parts(report_text(make_report({folder_ / "cope-seed3"})), {"0 of 1, 1 unfinished"});
  // The sweep recorded a failure, but the run has finished since.
  write_sweep({{"1", "failed"}});
  EXPECT_EQ(make_report({sweep_}).runs.at(0).state, RunState::finished);
}

TEST_F(Reports, ARunThatCannotBeReadIsNamed) {
  add("cope-seed1", config_of("flip-flop", "cope", 1), 10, 2);
  add("cope-seed2", config_of("flip-flop", "cope", 2), 10, 2);
  write_file(folder_ / "cope-seed2/config.json", "{");
  EXPECT_EQ(make_report({sweep_}).problems.size(), 1u);
  expect_parts(text(), {"not read: " + sweep_ + "/cope-seed2"});
  EXPECT_EQ(tally("report .").code, 1);
}

TEST_F(Reports, NoRunCountsTwice) {
  add("cope-seed1", config_of("flip-flop", "cope", 1), 10, 2);
  add("cope-seed1.old", config_of("flip-flop", "cope", 1), 10, 90);
  add("cope-seed1.old-2", config_of("flip-flop", "cope", 1), 10, 90);
  EXPECT_EQ(make_report({sweep_}).runs.size(), 1u);
  EXPECT_EQ(make_report({sweep_, folder_ / "cope-seed1/", sweep_}).runs.size(), 1u);
  EXPECT_EQ(make_report({folder_ / "cope-seed1.old"}).runs.size(), 1u);  // it is named explicitly
}

// Selective copy trains on 256 + 256 + 256 tokens; its sparse split is longer.
TEST_F(Reports, RowsThatNoTrainingReachesAreMarked) {
  add("absolute", config_of("selective-copy", "absolute", 1), 10, 2);
  add("relative", config_of("selective-copy", "0:relative,1:cope", 1), 10, 2);
  add("cope", config_of("selective-copy", "cope", 1), 10, 2);
  RunConfig few = config_of("selective-copy", "relative", 1);
  few.set("pe.distances", "16");
  few.set("pe.far", "cap");
  add("few", few, 10, 2);
  const Report report = make_report({sweep_});
  expect_parts(report_text(report), {"50%\u2020", "\u2020 longer than any training sequence"});
  for (const ReportGroup& group : report.tasks.at(0).groups) {
    const bool reaches = group.encoding().starts_with("absolute") || group.encoding().starts_with("0:");
    EXPECT_EQ(group.untrained, reaches ? std::set<std::string>{"ood-sparse"} : std::set<std::string>{})
        << group.label();
  }
  const TemporaryFolder other;
  RunFolder::create(other / "flip", config_of("flip-flop", "absolute", 1), false);
  EXPECT_FALSE(holds(report_text(make_report({other / "flip"})), "\u2020")) << "its splits are equally long";
}

TEST_F(Reports, CurvesAreMeansInBands) {
  add("cope-seed1", config_of("flip-flop", "cope", 1), 40, 2);
  add("cope-seed2", config_of("flip-flop", "cope", 2), 20, 6);
  add("cope-seed3", config_of("flip-flop", "cope", 3), 90, 0, false);  // its partial curve would distort the mean
  const Chart chart = report_chart(make_report({sweep_}));
  ASSERT_EQ(chart.panels.size(), 2u);
  EXPECT_EQ(chart.panels[1].title, "ood-sparse");
  ASSERT_EQ(chart.panels[1].series.size(), 1u);
  const std::vector<ChartPoint>& points = chart.panels[1].series[0].points;
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].x, 50);
  EXPECT_NEAR(points[0].y, 0.3, 1e-12);
  EXPECT_NEAR(points[0].low, 0.2, 1e-12);
  EXPECT_NEAR(points[0].high, 0.4, 1e-12);
  EXPECT_NEAR(points[1].y, 0.04, 1e-12);
}

TEST_F(Reports, ThePageHasEveryRunWithItsCountsAndTheWayToItsInspection) {
  add("cope-seed1", config_of("flip-flop", "cope", 1), 90, 3);
  add("cope-seed2", config_of("flip-flop", "cope", 2), 90, 0, false);
  write_file(folder_ / "cope-seed1/inspect.html", "");
  const Report report = make_report({sweep_});
  const JsonValue page = report_page_json(report, sweep_);
  const JsonValue& group = page.at("tasks").elements()[0].at("groups").elements()[0];
  const JsonValue::Array& runs = group.at("runs").elements();
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(write_json(runs[0].at("results")), R"({"in-distribution":[0,100,0,10],"ood-sparse":[3,100,5,10]})");
  EXPECT_EQ(write_json(runs[0].at("curves").at("ood-sparse")), "[[50,90,100,1,10],[100,3,100,5,10]]");
  EXPECT_EQ(runs[0].string("inspect"), "cope-seed1/inspect.html");
  EXPECT_EQ(runs[1].string("state"), "unfinished");
  EXPECT_FALSE(runs[1].contains("inspect"));
  EXPECT_EQ(runs[1].at("settings").string("model.width"), "64");
  expect_parts(report_page(report, sweep_), {"flip-flop: report"});
}

TEST_F(Reports, TheCommandPrintsAndWrites) {
  add("cope-seed1", config_of("flip-flop", "cope", 1), 40, 2);
  expect_parts(done("report . --out curves.svg"), {"| cope     |"});
  expect_parts(file("curves.svg"), {"ood-sparse"});
  EXPECT_EQ(json("report .").elements("tables").size(), 2u);
  refused("report nothing", "nothing", 1);
  refused("report", "DIR is required");
}

}  // namespace tally::testing::report_test
