// Options of all commands: a sweep passes them to the processes that it starts.
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "tasks/command_line/command.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace common_options_test {

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

TEST(CommonOptions, EachOfThemReachesAChild) {
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

TEST(CommonOptions, ASweepTrainsAsItIsTold) {
  const TemporaryFolder folder;
  const std::vector<std::string> there{"--seed=1", "--device=cuda-host", "--precision=tf32", "--debug-nan"};
  ASSERT_EQ(run_tally(tiny_training(folder / "there", "cope", there), folder).code, 0);
  ASSERT_EQ(run_tally(tiny_training(folder / "here", "cope", {"--seed=1"}), folder).code, 0);
  std::vector<std::string> words =
      tiny_training(folder / "sweep", "cope", {"--seeds=1", "--device=cuda-host", "--precision=tf32", "--debug-nan"});
  words[0] = "sweep";
  ASSERT_EQ(run_tally(words, folder).code, 0);
  EXPECT_TRUE(checkpoints_of(folder / "sweep/cope-seed1") == checkpoints_of(folder / "there"));
  EXPECT_FALSE(checkpoints_of(folder / "sweep/cope-seed1") == checkpoints_of(folder / "here"));
}

// With rounded matmul operands, for any number of threads; the result differs from f32.
TEST(CommonOptions, InBf16TheCpuTrainsToTheSameBytesToo) {
  const TemporaryFolder folder;
  const auto trained = [&](const std::string& name, const std::vector<std::string>& words) {
    EXPECT_EQ(run_tally(tiny_training(folder / name, "cope", words), folder).code, 0) << name;
    return checkpoints_of(folder / name);
  };
  const auto one = trained("one", {"--seed=1", "--precision=bf16", "--threads=1"});
  EXPECT_TRUE(trained("three", {"--seed=1", "--precision=bf16", "--threads=3"}) == one);
  EXPECT_FALSE(trained("f32", {"--seed=1"}) == one);
}

TEST(CommonOptions, AnOperationThatIsNotFiniteIsNamedInASweepToo) {
  const TemporaryFolder folder;
  std::vector<std::string> words =
      tiny_training(folder / "sweep", "none", {"--seeds=1", "--set", "optimiser.lr=1e30", "--debug-nan"});
  words[0] = "sweep";
  EXPECT_EQ(run_tally(words, folder).code, 1);
  const std::string log = read_file(folder / "sweep/none-optimiser.lr=1e30-seed1.log");
  EXPECT_TRUE(holds(log, "the result, [")) << log;
}

}  // namespace common_options_test
}  // namespace tally::testing
