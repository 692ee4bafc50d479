// Suites: every entry exists, and each preset occurs once.
#include "tasks/runs/preset.hpp"

#include <gtest/gtest.h>

#include <set>

#include "tests/tasks/make_task.hpp"

namespace tally::suite_test {

std::vector<std::string> names_of(std::string_view suite) {
  std::vector<std::string> names;
  for (const PresetEntry* preset : find_suite(suite).presets) names.push_back(preset->task + "/" + preset->name);
  return names;
}

// Also every quick preset of the toy tasks: one outside of all suites would silently be missing from the overview.
// Texts need a corpus.
TEST(Suites, AllHoldsTheOthersEachPresetOnce) {
  const std::vector<std::string> all = names_of("all");
  const std::set<std::string> once(all.begin(), all.end());
  EXPECT_EQ(once.size(), all.size());
  for (const SuiteEntry& suite : suite_registry()) {
    EXPECT_FALSE(suite.presets.empty() || suite.summary.empty()) << suite.name;
    for (const std::string& name : names_of(suite.name)) EXPECT_TRUE(once.contains(name)) << name;
  }
  for (const PresetEntry& preset : preset_registry()) {
    if (!preset.name.starts_with("quick") || preset.task == "text") continue;
    EXPECT_TRUE(once.contains(preset.task + "/" + preset.name)) << preset.task;
  }
}

// A new task joins "all" by its preset.
TEST(Suites, APartMayBePresetsOfEveryTask) {
  std::vector<std::string> names;
  const std::vector<SuiteEntry> some =
      read_suites(R"({"some": {"summary": "", "parts": ["parity/quick", "*/quick"]}})", "s.json");
  for (const PresetEntry* preset : some.at(0).presets) {
    names.push_back(preset->task + "/" + preset->name);
  }
  EXPECT_EQ(names.front(), "parity/quick");
  for (const char* name : {"flip-flop/quick", "group-word/quick-a5", "parity/quick"}) {
    EXPECT_EQ(std::ranges::count(names, name), 1) << name;
  }
  for (const char* name : {"flip-flop/paper", "text/prose-quick", "text/code-quick"}) {
    EXPECT_EQ(std::ranges::count(names, name), 0) << name;
  }
}

TEST(Suites, WrongFilesAreRefused) {
  const auto error = [](const std::string& suites) {
    return testing::error_of([&] { read_suites("{" + suites + "}", "s.json"); });
  };
  const auto of_parts = [&](const std::string& parts) {
    return error(R"("a": {"summary": "", "parts": ["n-back/quick"]}, "b": {"summary": "", "parts": [)" + parts + "]}");
  };
  EXPECT_NE(testing::error_of([] { find_suite("recal"); }).find("did you mean 'recall'?"), std::string::npos);
  EXPECT_EQ(of_parts(R"("a")"), "");
  EXPECT_EQ(of_parts(R"("mqar/fast")"),
            "s.json: b: [preset] the task 'mqar' has no preset 'fast'; it has brief, paper, quick");
  EXPECT_TRUE(of_parts(R"("*/fast")").starts_with("s.json: b: [suite] no task has a preset 'fast'; there are "));
  EXPECT_TRUE(of_parts(R"("b")").starts_with("s.json: b: [suite] there is no earlier suite 'b'")) << "a cycle";
  EXPECT_EQ(of_parts("5"), "s.json: b: [json] 'parts' must hold strings, but has an integer");
  EXPECT_EQ(of_parts(""), "s.json: b: [suite] 'parts' is missing or empty");
  EXPECT_EQ(error(R"("a": {"summary": "", "prats": []})"),
            "s.json: a: [suite] unknown key 'prats'; did you mean 'parts'?");
}

}  // namespace tally::suite_test
