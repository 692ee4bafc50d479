// Published tables as plans: every run is valid, and cells are compared with the printed numbers as the page states.
#include "tasks/results/reproduction.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "nn/options.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/runs/run_folder.hpp"
#include "tests/core/io_files.hpp"

namespace tally::reproduction_test {

using testing::error_of;

// One seed for each error rate. Each seed has this number of answers.
Reproduced::Cell cell_of(const std::vector<double>& rates, std::int64_t answers, std::optional<Printed> printed = {}) {
  Reproduced::Cell cell{.printed = printed};
  for (const double rate : rates) {
    Evaluation& e = cell.results.emplace_back();
    e.scored = answers;
    e.wrong = std::llround(rate * static_cast<double>(answers));
  }
  return cell;
}

Reproduced::Cell perplexities_of(const std::vector<double>& values, Printed printed) {
  Reproduced::Cell cell{.printed = printed};
  for (const double value : values) {
    Evaluation& e = cell.results.emplace_back();
    e.loss = std::log(value);
    e.text = TextCounts{};
  }
  return cell;
}

TEST(Reproductions, EveryRunOfEveryTableCanBeMadeAtBothScales) {
  std::set<std::string> names;
  for (const Reproduction& table : reproduction_registry()) {
    EXPECT_TRUE(names.insert(table.name).second) << table.name;
    EXPECT_FALSE(table.rows.empty() || table.columns.empty()) << table.name;
    for (const ReproductionRow& row : table.rows) EXPECT_LE(row.printed.size(), table.columns.size()) << row.label;
    for (const Scale scale : {Scale::quick, Scale::paper}) {
      if (scale == Scale::paper && !table.published) {
        EXPECT_EQ(error_of([&] {
                    runs_of(table, {scale, {1, 2}, ""});
                  }),
                  formatted("[reproduce] {} has no scale paper: no paper trains models on it", table.name));
        continue;
      }
      const std::vector<ReproductionRun> runs = runs_of(table, {scale, {1, 2}, ""});
      std::set<std::string> folders;
      bool has_p_max = false;
      for (const ReproductionRun& run : runs) {
        EXPECT_TRUE(folders.insert(run.name).second) << run.name;
        has_p_max |= std::ranges::any_of(run.config.fields(), [](const RunConfig::Field& field) {
          return field.name.starts_with("pe.") && field.name.ends_with(".p-max");
        });
      }
      EXPECT_EQ(runs.size() % 2, 0u) << table.name;
      // A table without contextual positions has none of their open choices.
      EXPECT_TRUE(has_p_max || std::ranges::none_of(table.choices,
                                                    [](const OpenChoice& choice) {
                                                      return choice.what.quick.find("p_max") != std::string::npos;
                                                    }))
          << table.name;
    }
  }
}

TEST(Reproductions, APartSaysWhatItIsAPartOf) {
  const Reproduction& table = find_reproduction("encodings");
  EXPECT_EQ(part_of(table, {}, {}).title, table.title);
  const Reproduction part = part_of(table, {"cope", "rope"}, {"mqar", "group-word"});
  EXPECT_EQ(part.title, table.title + " (tasks: mqar, group-word) (rows: cope; rope)");
  EXPECT_TRUE(reproduced_text(reproduced(part, {Scale::quick, {1}, ""}, "nowhere")).starts_with(part.title + "\n"));
}

TEST(Reproductions, TablesShareTheirRuns) {
  const auto names = [](const char* table) {
    std::set<std::string> found;
    for (const ReproductionRun& run : runs_of(find_reproduction(table), {Scale::quick, {1}, ""}))
      found.insert(run.name);
    return found;
  };
  EXPECT_EQ(names("table9"), names("table3"));
  for (const char* other : {"table7", "figure5", "table8"}) {
    EXPECT_TRUE(names(other).contains("flip-flop/cope-seed1")) << other;
  }
  for (const std::string& run : names("table4")) EXPECT_TRUE(names("table3").contains(run)) << run;
  EXPECT_TRUE(names("table2").contains("counting/cope-seed1"));
  // If one choice of table 3 is changed, the others stay the same.
  const std::set<std::string> choices = names("counting-choices"), table3 = names("table3");
  for (const std::string encoding : {"cope-pe.p-max=128", "relative"}) {
    const auto run = [&](const std::string& more) {
      return formatted("counting/{}-task.max-operations=96-task.max-tokens=128-task.vars=3{}-seed1", encoding, more);
    };
    EXPECT_TRUE(choices.contains(run("")) && table3.contains(run(""))) << run("");
    EXPECT_TRUE(choices.contains(run("-optimiser.lr=1e-3"))) << run("-optimiser.lr=1e-3");
  }
  EXPECT_TRUE(choices.contains("counting/relative-task.vars=3-seed1"));
}

TEST(Reproductions, ContextsOfAFigureScoreTheSameTargets) {
  const Reproduction& figure = find_reproduction("figure3");
  const auto capped = std::ranges::find(figure.rows, "relative, capped", &ReproductionRow::label);
  const VariedQuestion question = context_of(figure, *capped, figure.columns[1], Scale::quick).value();
  EXPECT_EQ(question.value, "512");
  EXPECT_EQ(changes_text(question.beside, question.changes), "task.after=1024 task.stride=128 pe.relative.far=cap");
  EXPECT_EQ(context_of(figure, *capped, figure.columns[2], Scale::paper).value().value, "4096");
  const ReproductionSetting setting{Scale::quick, {1}, ""};
  EXPECT_EQ(run_of(figure, *capped, figure.columns[1], setting, 2).value().name, "text-prose-quick/relative-seed2");
  const Reproduction& table = find_reproduction("table5");
  EXPECT_FALSE(context_of(table, table.rows[0], table.columns[0], Scale::quick));
}

// Perplexities are compared as printed, without intervals of counts.
TEST(Reproductions, APerplexityDiffersBeyondTheSpreadOfBoth) {
  const auto differs = [](const std::vector<double>& values) { return perplexities_of(values, {23.5, 0.3}).differs(); };
  EXPECT_FALSE(differs({22.8, 23.0}));  // 0.6 apart; sqrt(0.02 / 2 + 0.03) = 0.2, and t = 3.0 of 2.9 degrees of freedom
  EXPECT_TRUE(differs({22.7, 22.9}));
  EXPECT_TRUE(differs({20, std::numeric_limits<double>::infinity()}));
  EXPECT_FALSE(differs({20})) << "one seed";
}

TEST(Reproductions, ANumberDiffersBeyondTheSpreadOfBothAndTheIntervalOfTheCounts) {
  EXPECT_FALSE(cell_of({0.05, 0.05}, 50).differs()) << "nothing is printed";
  EXPECT_FALSE(cell_of({}, 0, Printed{5}).differs()) << "nothing is measured";
  // 0 of 1,000: the interval of the counts reaches 0.38%.
  EXPECT_FALSE(cell_of({0, 0}, 500, Printed{0.3}).differs());
  EXPECT_TRUE(cell_of({0, 0}, 500, Printed{0.5}).differs());
  // 10% +- 0 measured on many; printed 16% (2.5): 4.303 * 2.5 / sqrt(3) = 6.2 points cover the difference, (2.3) do
  // not.
  EXPECT_FALSE(cell_of({0.1, 0.1}, 500'000, Printed{16, 2.5}).differs());
  EXPECT_TRUE(cell_of({0.1, 0.1}, 500'000, Printed{16, 2.3}).differs());
  // A spread of our own: 5% and 15%, a standard error of 5 points with one degree of freedom, 12.706 * 5 = 63.5 points.
  EXPECT_FALSE(cell_of({0.05, 0.15}, 500'000, Printed{73}).differs());
  EXPECT_TRUE(cell_of({0.05, 0.15}, 500'000, Printed{74}).differs());
}

Reproduction one_column() {
  return {.name = "t",
          .title = "T",
          .source = "S",
          .columns = {{"c", "selective-copy", "ood-sparse"}},
          .rows = {{"a", "absolute"}, {"b", "rope"}}};
}

bool says(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// A printed number without a deviation is compared only by our spread, and the table states this.
TEST(Reproductions, MarksAreExplainedWhereTheyStand) {
  const Reproduction table = one_column();
  const auto text_of = [&](Printed first, Printed second) {
    return reproduced_text(
        {.table = &table,
         .setting = {Scale::quick, {1, 2}, ""},
         .cells = {{cell_of({0.5, 0.5}, 1'000'000, first)}, {cell_of({0.5, 0.5}, 1'000'000, second)}}});
  };
  const std::string star = "; * differs from the paper's number", exact = "; \u2021 the paper prints no deviation";
  const std::string both = text_of({5, 1}, {5}), known = text_of({5, 1}, {50, 1}), unknown = text_of({5}, {50});
  EXPECT_TRUE(says(both, "50% (0)*") && says(both, "50% (0)\u2021") && says(both, star) && says(both, exact)) << both;
  EXPECT_TRUE(says(known, star) && !says(known, exact)) << known;
  EXPECT_TRUE(says(unknown, exact) && !says(unknown, star)) << unknown;
  Reproduced result{.table = &table, .setting = {Scale::quick, {1, 2}, ""}, .cells = {{cell_of({0.5, 0.5}, 10)}, {{}}}};
  EXPECT_FALSE(says(reproduced_text(result), untrained_mark));
  result.cells[0][0].untrained = true;
  const std::string text = reproduced_text(result);
  EXPECT_TRUE(says(text, formatted("50% (0){}", untrained_mark))) << text;
  EXPECT_TRUE(says(text, formatted("{} longer than any training sequence", untrained_mark))) << text;
}

// The choices that a table states agree with its runs.
TEST(Reproductions, ChoicesAreThoseOfTheRuns) {
  const auto setting_of = [](const char* table_name, const char* row_label, std::size_t column, Scale scale,
                             const char* name) {
    const Reproduction& table = find_reproduction(table_name);
    for (const ReproductionRow& row : table.rows) {
      if (row.label != row_label) continue;
      const auto run = run_of(table, row, table.columns[column], {scale, {1}, ""}, 1);
      for (const RunConfig::Group& group : run->config.groups()) {
        for (const OptionInfo& option : group.options) {
          if (group.prefix + option.name == name) return to_text(option.value);
        }
      }
    }
    return std::string();
  };
  const auto chosen = [](const char* table_name, std::string_view what, Scale scale) {
    for (const OpenChoice& choice : find_reproduction(table_name).choices) {
      if (choice.what.at(scale).starts_with(what)) return choice.chosen.at(scale);
    }
    return std::string();
  };
  for (const Scale scale : {Scale::quick, Scale::paper}) {
    SCOPED_TRACE(name_of(scale));
    const bool one_table = setting_of("table3", "relative", 0, scale, "pe.relative.share") == "model";
    EXPECT_EQ(chosen("table3", "relative's table", scale), one_table ? "one for the whole model" : "one per layer");
    const int rows = std::stoi(setting_of("table3", "cope", 0, scale, "pe.cope.p-max")) + 1;
    const bool scaled = setting_of("table3", "cope", 0, scale, "pe.cope.position-scale") == "sqrt-d";
    EXPECT_EQ(chosen("table3", "cope's table", scale),
              formatted("one per layer, {} rows, z {}", rows, scaled ? "/ sqrt(d)" : "as printed"));
    EXPECT_EQ(chosen("table2", "selective copy: p_max", scale),
              setting_of("table2", "cope", 2, scale, "pe.cope.p-max"));
    EXPECT_EQ(chosen("table2", "flip-flop: p_max", scale), setting_of("table2", "cope", 0, scale, "pe.cope.p-max"));
    const bool matrices = setting_of("table2", "cope", 0, scale, "optimiser.decay") == "matrices";
    EXPECT_EQ(chosen("table2", "flip-flop: weight decay", scale),
              formatted("0.1{}, 50 steps, the bit after r", matrices ? " on matrices alone" : ""));
    EXPECT_EQ(chosen("lstm", "width", scale), setting_of("lstm", "LSTM, one layer", 0, scale, "model.width"));
    EXPECT_EQ(chosen("figure5", "sequences", scale).substr(0, 3),
              with_commas(std::stoi(setting_of("figure5", "cope", 0, scale, "eval-count"))).substr(0, 3));
  }
}

// One setting that differs is enough.
TEST(Reproductions, ARunWithAnotherSettingIsNotShown) {
  const Reproduction table = one_column();
  const ReproductionSetting setting{Scale::quick, {1}, ""};
  const TemporaryFolder folder;
  ReproductionRun run = std::move(runs_of(table, setting).at(0));
  RunFolder::create(folder.file(run.name), run.config, false);
  EXPECT_TRUE(reproduced(table, setting, folder.file("")).problems.empty());
  run.config.set("batch", "3");
  RunFolder::create(folder.file(run.name), run.config, true);
  const Reproduced result = reproduced(table, setting, folder.file(""));
  ASSERT_EQ(result.problems.size(), 1u);
  EXPECT_NE(result.problems[0].find("holds a run with other settings: batch"), std::string::npos) << result.problems[0];
}

}  // namespace tally::reproduction_test
