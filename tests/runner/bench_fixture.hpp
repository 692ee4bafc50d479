// tally bench with a small model, for the tests of the command.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {

class Bench : public ::testing::Test {
 protected:
  Finished bench(std::vector<std::string> words) {
    words.insert(words.begin(), "bench");
    words.insert(words.end(), {"--length=24", "--batch=2", "--model.width=16", "--model.heads=2", "--threads=1"});
    return run_tally(words, folder_);
  }
  JsonValue bench_json(std::vector<std::string> words) {
    words.emplace_back("--json");
    const Finished finished = bench(words);
    EXPECT_EQ(finished.code, 0) << finished.err;
    return parse_json(finished.out, JsonLimits{}, "bench");
  }

  TemporaryFolder folder_;
};

}  // namespace tally::testing
