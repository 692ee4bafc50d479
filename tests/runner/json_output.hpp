// What a command printed with --json.
#pragma once

#include <gtest/gtest.h>

#include "core/io/json.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {

// Its first line. The command must have ended well.
inline JsonValue json_of(const Finished& result) {
  EXPECT_EQ(result.code, 0) << result.err;
  return parse_json(result.out.substr(0, result.out.find('\n')), {}, "stdout");
}

}  // namespace tally::testing
