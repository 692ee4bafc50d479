// Suites: what they hold is there, each preset once.
#include "tasks/suite.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/tasks/make_task.hpp"

namespace tally {
namespace {

std::vector<std::string> names_of(std::string_view suite) {
  std::vector<std::string> names;
  for (const PresetEntry* preset : presets_of(find_suite(suite))) names.push_back(preset->task + "/" + preset->name);
  return names;
}

TEST(Suites, HoldPresetsThatThereAre) {
  for (const SuiteEntry* suite : suite_registry()) {
    EXPECT_FALSE(names_of(suite->name).empty()) << suite->name;
    EXPECT_FALSE(suite->summary.empty()) << suite->name;
  }
  using Names = std::vector<std::string>;
  EXPECT_EQ(names_of("paper"),
            (Names{"flip-flop/quick", "selective-copy/quick", "counting/quick", "last-sentence/quick"}));
}

TEST(Suites, AllHoldsTheOthersEachPresetOnce) {
  const std::vector<std::string> all = names_of("all");
  const std::set<std::string> once(all.begin(), all.end());
  EXPECT_EQ(once.size(), all.size());
  for (const SuiteEntry* suite : suite_registry()) {
    for (const std::string& name : names_of(suite->name)) EXPECT_TRUE(once.contains(name)) << name;
  }
}

// A quick preset that is in no suite would be left out of the overview without a word. Texts need a corpus.
TEST(Suites, AllHoldsEveryQuickPresetOfTheToyTasks) {
  const std::vector<std::string> all = names_of("all");
  for (const PresetEntry* preset : preset_registry()) {
    const std::string name = preset->task + "/" + preset->name;
    if (!preset->name.starts_with("quick") || preset->task == "text") continue;
    EXPECT_TRUE(std::ranges::count(all, name) == 1) << name;
  }
}

TEST(Suites, UnknownNamesAreRefused) {
  EXPECT_NE(testing::error_of([] { find_suite("recal"); }).find("did you mean 'recall'?"), std::string::npos);
  const SuiteEntry wrong("wrong", "", "mqar/fast");
  EXPECT_NE(testing::error_of([&] { presets_of(wrong); }).find("has no preset 'fast'"), std::string::npos);
}

}  // namespace
}  // namespace tally
