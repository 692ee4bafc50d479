// The memory estimate of runs with encoding options.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/nn/refusals.hpp"
#include "tests/tasks/measured_peak.hpp"

namespace tally {
namespace estimate_options_test {

// Several tiles of rows and of keys, with partial last tiles.
constexpr std::int64_t length = 140;

RunConfig small(const testing::EncodingCase& one, const char* form) {
  RunConfig config = RunConfig::make("flip-flop", "none", "quick");
  for (const auto& [name, value] : {std::pair<const char*, std::string>{"task.length", to_text(length)},
                                    {"model.width", "16"},
                                    {"model.layers", "1"},
                                    {"model.heads", "2"},
                                    {"batch", "1"},
                                    {"eval-batch", "2"},
                                    {"model.attention", form}}) {
    config.set(name, value);
  }
  config.encoding = one.choice.clone();
  config.model.layers = std::max(config.model.layers, config.encoding.least_layers());
  return config;
}

void expect_all_exact(const std::vector<testing::EncodingCase>& cases) {
  std::size_t seen = 0;
  for (std::size_t n = 0; n < cases.size(); ++n) {
    if (testing::refused(cases[n].choice, length, length)) continue;
    ++seen;
    const char* const form = n % 2 == 0 ? "tiled" : "composed";
    testing::expect_exact(small(cases[n], form), formatted("{}, {}", cases[n].label, form));
  }
  EXPECT_GT(2 * seen, cases.size());  // some pairs of encodings cannot be combined
}

// Every value of every option is among all cases; this test uses a share of them.
TEST(EstimateOfOptions, MemoryIsThatOfTheRun) { expect_all_exact(testing::every(13, testing::all_cases())); }

TEST(EstimateOfOptions, MemoryWithAllOptionsChangedIsThatOfTheRun) {
  expect_all_exact(testing::every(2, testing::changed_cases()));
}

// Windows, and pairs of encodings, added or in different layers and heads.
TEST(EstimateOfOptions, MemoryOfCombinationsIsThatOfTheRun) {
  expect_all_exact(testing::every(2, testing::windowed_cases()));
  expect_all_exact(testing::every(80, testing::together_cases(8)));
}

}  // namespace estimate_options_test
}  // namespace tally
