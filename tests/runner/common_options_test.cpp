// Options of all commands: a sweep passes them to the processes that it starts.
#include <gtest/gtest.h>

#include <variant>

#include "tasks/command_line/command.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::common_options_test {

// Another value than the default.
void change(const Option& option) {
  if (bool* const* flag = std::get_if<bool*>(&option.target)) {
    **flag = true;
  } else if (std::int64_t* const* number = std::get_if<std::int64_t*>(&option.target)) {
    **number += 1;
  } else {
    std::string& text = *std::get<std::string*>(option.target);
    text = option.rules.allowed.empty() ? text + "-other" : option.rules.allowed.back();
  }
}

class SharedOptions : public Program {};

TEST_F(SharedOptions, AllReachTheRunsOfASweep) {
  CommonOptions given;
  std::vector<std::string> before = given.words();
  for (const Option& option : given.options()) {
    SCOPED_TRACE(option.names);
    change(option);
    EXPECT_NE(given.words(), before) << "the words for a child do not tell it";
    before = given.words();
  }
  CommandLine child(given.words());
  EXPECT_EQ(child.parse("resume", "", ""), "");
  EXPECT_EQ(child.common.words(), given.words());
}

TEST_F(SharedOptions, OfASweepAreThoseOfOneRun) {
  const std::string there = " --device=cuda-host --precision=tf32 --debug-nan";
  done(tiny("there", "cope", "--seed=1" + there));
  done(tiny("here", "cope", "--seed=1"));
  done(tiny("sweep", "cope", "--seeds=1" + there, "sweep"));
  EXPECT_TRUE(checkpoints_of(folder_ / "sweep/cope-seed1") == checkpoints_of(folder_ / "there"));
  EXPECT_FALSE(checkpoints_of(folder_ / "sweep/cope-seed1") == checkpoints_of(folder_ / "here"));
}

// With rounded matmul operands, for any number of threads; the result differs from f32.
TEST_F(SharedOptions, InBf16TheCpuTrainsToTheSameBytesToo) {
  const auto trained = [&](const std::string& name, const std::string& options) {
    done(tiny(name, "cope", options));
    return checkpoints_of(folder_ / name);
  };
  const auto one = trained("one", "--precision=bf16 --threads=1");
  EXPECT_TRUE(trained("three", "--precision=bf16 --threads=3") == one);
  EXPECT_FALSE(trained("f32", "") == one);
}

}  // namespace tally::testing::common_options_test
