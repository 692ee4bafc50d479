// The output of a command with --json.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {

// The first line as JSON. The command must have succeeded.
inline JsonValue json_of(const Finished& result) {
  EXPECT_EQ(result.code, 0) << result.err;
  return parse_json(result.out.substr(0, result.out.find('\n')), {.max_depth = 16, .max_values = 100'000}, "stdout");
}
// Runs the command with --json in `folder` and parses its output.
inline JsonValue json_of(std::vector<std::string> words, const TemporaryFolder& folder) {
  words.emplace_back("--json");
  return json_of(run_tally(words, folder));
}

}  // namespace tally::testing
