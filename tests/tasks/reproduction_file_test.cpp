// Tables of papers in JSON: every member is read, and errors name file, table, row and key.
#include <gtest/gtest.h>

#include <cmath>

#include "nn/encoding/encoding.hpp"
#include "tasks/results/reproduction.hpp"
#include "tests/error_of.hpp"

namespace tally::reproduction_file_test {

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

const std::string file = R"({
  "texts": {"prose": {"preset": {"quick": "prose-quick", "paper": "wikitext-paper"}, "data": "d", "made-by": "m"}},
  "choices": {
    "one": [{"what": "w", "chosen": {"quick": "q", "paper": "p"}, "why": "y"}],
    "two": [{"what": "v", "chosen": "c", "why": "y"}, "one"]
  },
  "tables": {
    "t": {
      "title": "T", "source": "S", "note": "N", "aliases": ["u"], "curves": true,
      "columns": [
        {"title": {"quick": "short", "paper": "long"}, "task": "flip-flop", "split": "ood-sparse",
         "settings": "task.length=16", "share": 0.5},
        {"title": "read", "task": "text", "split": "test", "text": "prose", "context": {"quick": 512, "paper": 2048}},
        {"title": "print", "unit": "perplexity"}
      ],
      "rows": [
        {"encoding": "rope", "printed": [5.5, null, [0.5, 0.25]]},
        {"label": "far", "encoding": "relative", "settings": {"paper": "model.layers=2"},
         "beyond": "pe.relative.far=cap"}
      ],
      "choices": ["two", {"what": "last", "chosen": "c", "why": "y"}]
    }
  }
})";

TEST(ReproductionFiles, WhatTheySayArrives) {
  const std::vector<Reproduction> tables = read_reproductions(file, "f.json");
  ASSERT_EQ(tables.size(), 1u);
  const Reproduction& table = tables[0];
  EXPECT_EQ(table.name + table.title + table.source + table.note, "tTSN");
  EXPECT_EQ(table.aliases, std::vector<std::string>{"u"});
  EXPECT_TRUE(table.published);
  EXPECT_TRUE(table.curves);
  ASSERT_EQ(table.columns.size(), 3u);
  const ReproductionColumn &first = table.columns[0], &text = table.columns[1], &print = table.columns[2];
  EXPECT_EQ(first.title.quick + first.title.paper + first.task + first.split, "shortlongflip-flopood-sparse");
  EXPECT_EQ(first.settings.paper, "task.length=16");
  EXPECT_EQ(first.share, 0.5);
  EXPECT_EQ(first.text, nullptr);
  EXPECT_EQ(text.text->made_by.quick, "m");
  EXPECT_EQ(preset_of(text, Scale::paper), "wikitext-paper");
  EXPECT_EQ(text.context.quick, 512);
  EXPECT_EQ(text.context.paper, 2048);
  EXPECT_EQ(text.share, 1);
  EXPECT_EQ(print.unit, "perplexity");
  ASSERT_EQ(table.rows.size(), 2u);
  const std::vector<Printed>& printed = table.rows[0].printed;
  EXPECT_EQ(table.rows[0].label, "rope");
  ASSERT_EQ(printed.size(), 3u);
  EXPECT_TRUE(printed[0].mean == 5.5 && std::isnan(printed[0].deviation));
  EXPECT_FALSE(printed[1].stated());
  EXPECT_TRUE(printed[2].mean == 0.5 && printed[2].deviation == 0.25);
  EXPECT_EQ(table.rows[1].label + table.rows[1].settings.paper, "farmodel.layers=2");
  EXPECT_EQ(table.rows[1].beyond.quick, "pe.relative.far=cap");
  ASSERT_EQ(table.choices.size(), 3u);
  EXPECT_EQ(table.choices[0].what.quick + table.choices[1].chosen.quick + table.choices[1].chosen.paper, "vqp");
  EXPECT_EQ(table.choices[2].what.paper, "last");
}

TEST(ReproductionFiles, ARowMayStandForEveryEncoding) {
  const std::string every = with(file, R"({"encoding": "rope", "printed": [5.5, null, [0.5, 0.25]]})",
                                 R"({"every-encoding": {"cope": "cope+rope"}})");
  const std::vector<Reproduction> tables =
      read_reproductions(with(every, R"("label": "far", )", R"("label": "f", )"), "f.json");
  const std::vector<ReproductionRow>& rows = tables.at(0).rows;
  ASSERT_EQ(rows.size(), encoding_registry().size() + 1);
  for (std::size_t n = 0; n < encoding_registry().size(); ++n) {
    const std::string name = encoding_registry()[n]->name, expected = name == "cope" ? "cope+rope" : name;
    EXPECT_EQ(rows[n].label, expected);
    EXPECT_EQ(rows[n].encoding.paper, expected);
  }
}

TEST(ReproductionFiles, WrongOnesAreRefused) {
  struct Case {
    const char *from, *to, *error;  // a change of the file, and how its error begins
  };
  for (const Case& one : std::vector<Case>{
           {R"("texts")", R"("text")", "[reproduce] unknown key 'text'; did you mean 'texts'?"},
           {R"("title": "T", )", "", "t: [json] 'title' is missing"},
           {R"("flip-flop", )", R"("flipflop", )", "t: column 1: [task] unknown task 'flipflop'; did you mean"},
           {R"("task": "flip-flop", )", R"("unit": "%", )", "t: column 1: [reproduce] 'task' and 'split' go"},
           {R"("task.length=16")", "16", "t: column 1: [json] 'settings' must be a string, but is an integer"},
           {R"("share": 0.5)", R"("share": 1.5)", "t: column 1: [reproduce] 'share' must be above 0 and at most"},
           {R"("text": "prose")", R"("text": "prosa")", "t: column 2: [reproduce] there is no text 'prosa'"},
           {R"("quick": "prose-quick")", R"("quick": "prose")", "t: column 'read': [preset] the task 'text' has no"},
           {R"("encoding": "rope")", R"("encoding": "rop")", "t: row 'rop': [encoding] "},
           {R"("label": "far")", R"("label": "rope")", "t: [reproduce] two rows are called 'rope'"},
           {"[0.5, 0.25]", "[0.5]", "t: row 1: [reproduce] 'printed' must hold numbers, [mean, deviation] or"},
           {"5.5, null", "5.5, null, null", "t: [reproduce] row 'rope' has 4 printed numbers for 3 columns"},
           {R"({"encoding": "rope", "printed": [5.5, null, [0.5, 0.25]]})", R"({"every-encoding": {"har": "a"}})",
            "t: row 1: [reproduce] there is no encoding 'har'"},
           {R"(["two", )", R"(["tow", )", "t: [reproduce] there is no list of choices 'tow'"}}) {
    const std::string error = testing::error_of([&] { read_reproductions(with(file, one.from, one.to), "f.json"); });
    EXPECT_TRUE(error.starts_with(std::string("f.json: ") + one.error)) << one.error << "\n" << error;
  }
}

// Options and splits are checked with the runs.
TEST(ReproductionFiles, OptionsAndSplitsAreCheckedWithTheRuns) {
  const auto error = [](const std::string& from, const std::string& to) {
    const std::vector<Reproduction> tables = read_reproductions(with(file, from, to), "f.json");
    return testing::error_of([&] { runs_of(tables.at(0), {Scale::paper, {1}, ""}); });
  };
  EXPECT_EQ(error("N", "M"), "");
  EXPECT_TRUE(error(R"("ood-sparse")", R"("ood-sparce")")
                  .starts_with("t, long: [split] unknown split 'ood-sparce'; did you mean 'ood-sparse'?"));
  EXPECT_TRUE(
      error("task.length", "task.lenght").starts_with("t, rope, long: [task flip-flop] unknown option 'lenght'"));
  EXPECT_TRUE(error("layers=2", "layers=0").starts_with("t, far, long: [model] layers must be 1 to "));
}

}  // namespace tally::reproduction_file_test
