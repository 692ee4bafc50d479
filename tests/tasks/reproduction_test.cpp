// Published tables as plans: every run can be made, cells are compared with what is printed as the text says.
#include "tasks/reproduction.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/error.hpp"

namespace tally {
namespace {

TEST(Reproductions, EveryRunOfEveryTableCanBeMadeAtBothScales) {
  std::set<std::string> names;
  for (const Reproduction* table : reproduction_registry()) {
    EXPECT_TRUE(names.insert(table->name).second) << table->name;
    EXPECT_FALSE(table->rows.empty() || table->columns.empty()) << table->name;
    for (const ReproductionRow& row : table->rows) EXPECT_LE(row.printed.size(), table->columns.size()) << row.label;
    for (const Scale scale : {Scale::quick, Scale::paper}) {
      if (table->name == "encodings" && scale == Scale::paper) continue;  // of tasks that no paper's preset is for
      const std::vector<ReproductionRun> runs = runs_of(*table, {scale, {1, 2}, ""});
      std::set<std::string> folders;
      for (const ReproductionRun& run : runs) EXPECT_TRUE(folders.insert(run.name).second) << run.name;
      EXPECT_EQ(runs.size() % 2, 0u) << table->name;
    }
  }
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
  EXPECT_TRUE(names("table4").contains("counting/cope-seed1"));
  EXPECT_TRUE(names("table2").contains("counting/cope-seed1"));
}

TEST(Reproductions, AnUnknownTableIsNamedWithItsNeighbour) {
  try {
    find_reproduction("tabel2");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'table2'?"), std::string::npos) << error.what();
  }
}

TEST(Reproductions, ANumberDiffersBeyondTheSpreadOfBothAndTheIntervalOfTheCounts) {
  using Cell = Reproduced::Cell;
  EXPECT_FALSE((Cell{{0.05}, 5, 100}.differs())) << "nothing is printed";
  EXPECT_FALSE((Cell{{}, 0, 0, Printed{5}}.differs())) << "nothing is measured";
  // 0 of 1,000: up to 0.38% is within the interval of the counts.
  EXPECT_FALSE((Cell{{0, 0}, 0, 1000, Printed{0.3}}.differs()));
  EXPECT_TRUE((Cell{{0, 0}, 0, 1000, Printed{0.5}}.differs()));
  // 10% +- 0 measured on many; printed 16% (6): 2 * 6 / sqrt(3) = 6.9 points cover the difference, (4) do not.
  EXPECT_FALSE((Cell{{0.1, 0.1}, 100'000, 1'000'000, Printed{16, 6}}.differs()));
  EXPECT_TRUE((Cell{{0.1, 0.1}, 100'000, 1'000'000, Printed{16, 4}}.differs()));
  // A spread of our own: 5% and 15%, a standard error of 5 points.
  EXPECT_FALSE((Cell{{0.05, 0.15}, 100'000, 1'000'000, Printed{19}}.differs()));
  EXPECT_TRUE((Cell{{0.05, 0.15}, 100'000, 1'000'000, Printed{21}}.differs()));
}

TEST(Reproductions, OrderIsComparedWherePrintedNumbersTellRowsApart) {
  Reproduction table{.name = "t",
                     .title = "T",
                     .source = "S",
                     .columns = {{"c", "flip-flop", "ood-sparse"}},
                     .rows = {{"a", "none"}, {"b", "rope"}, {"c", "cope"}, {"d", "fox"}}};
  Reproduced result{.table = &table, .setting = {Scale::quick, {1}, ""}};
  const auto cell = [](double measured, Printed printed) {
    return std::vector{
        Reproduced::Cell{{measured, measured}, static_cast<std::int64_t>(measured * 1e6), 1'000'000, printed}};
  };
  // In print a < b, and c lies within the spread of both; measured b < a.
  result.cells = {cell(0.3, {10, 1}), cell(0.2, {20, 1}), cell(0.1, {15, 20}), cell(0.4, {30, 1})};
  const std::string text = reproduced_text(result);
  EXPECT_NE(text.find("of 3 pairs of rows that the paper tells apart, 2 in the same order here, 0 not told apart, 1 "
                      "reversed\n"),
            std::string::npos)
      << text;
  // One seed knows nothing of its spread; without a deviation in print the paper's is not known either.
  for (auto& row : result.cells) row[0].rates.pop_back(), row[0].printed->deviation = NAN;
  EXPECT_NE(reproduced_text(result).find("0 in the same order here, 6 not told apart, 0 reversed (some without"),
            std::string::npos)
      << reproduced_text(result);
}

}  // namespace
}  // namespace tally
