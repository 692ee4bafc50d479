// Several processes and one folder: only one trains in it, and no other can take it over.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include "core/io/file_descriptor.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace lock_test {

// The lock that a training process holds.
FileDescriptor lock_of(const std::string& folder) {
  FileDescriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(::flock(file.number(), LOCK_EX | LOCK_NB), 0) << folder;
  return file;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Lock, ForceDoesNotMoveARunAtWork) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  std::vector<std::string> words = tiny_training(run, "none", {"--steps=1000000", "--save-every=1000000"});
  words.insert(words.begin(), TALLY_RUNNER);
  const pid_t process = start_program(words, folder, "first");
  EXPECT_TRUE(comes_true([&] { return lines_of(run + "/metrics.jsonl") >= 3; }));
  const std::string config = read_file(run + "/config.json");
  const Finished refused = run_tally(tiny_training(run, "rope", {"--force"}), folder);
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(holds(refused.err, "another process is training in '" + run + "'")) << refused.err;
  EXPECT_EQ(refused.out, "");
  EXPECT_FALSE(std::filesystem::exists(run + ".old"));
  EXPECT_EQ(read_file(run + "/config.json"), config);
  send_signal(process, SIGKILL);
  finish_program(process, folder, "first");
  EXPECT_EQ(run_tally(tiny_training(run, "rope", {"--force"}), folder).code, 0);
  EXPECT_EQ(read_file(run + ".old/config.json"), config);
}

TEST(Lock, ForceDoesNotMoveASweepWithARunAtWork) {
  const TemporaryFolder folder;
  const std::string sweep = folder / "sweep", run = sweep + "/cope-seed1";
  ASSERT_EQ(run_tally(tiny_training(run, "cope"), folder).code, 0);
  {
    const FileDescriptor lock = lock_of(run);
    const Finished refused = run_tally(tiny_training(sweep, "none", {"--force"}), folder);
    EXPECT_EQ(refused.code, 1);
    EXPECT_TRUE(holds(refused.err, "another process is training in '" + run + "'")) << refused.err;
    EXPECT_EQ(names_in(folder.path().string()), (std::vector<std::string>{"program.err", "program.out", "sweep"}));
  }
  EXPECT_EQ(run_tally(tiny_training(sweep, "none", {"--force"}), folder).code, 0);
}

// Before its configuration is written.
TEST(Lock, ANewRunTakesItFirst) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  std::filesystem::create_directory(run);
  const FileDescriptor lock = lock_of(run);
  const Finished refused = run_tally(tiny_training(run, "none"), folder);
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(holds(refused.err, "another process is training")) << refused.err;
  EXPECT_TRUE(names_in(run).empty());
}

TEST(Lock, OfRunsStartedTogetherOneGoesOn) {
  const TemporaryFolder folder;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const std::string run = folder / ("run" + std::to_string(attempt));
    std::vector<pid_t> processes;
    std::vector<std::string> names;
    for (int seed = 1; seed <= 4; ++seed) {
      names.push_back("seed" + std::to_string(seed));
      std::vector<std::string> words = tiny_training(run, "none", {"--steps=30", "--seed=" + std::to_string(seed)});
      words.insert(words.begin(), TALLY_RUNNER);
      processes.push_back(start_program(words, folder, names.back()));
    }
    int done = 0;
    for (std::size_t i = 0; i < processes.size(); ++i) {
      const Finished result = finish_program(processes[i], folder, names[i]);
      EXPECT_TRUE(result.code == 0 || result.code == 1) << result.code;
      if (result.code != 0) {
        EXPECT_TRUE(holds(result.err, "another process") || holds(result.err, "holds a run already")) << result.err;
        continue;
      }
      ++done;
      const std::string seed = formatted("\"seed\": {}", i + 1);
      EXPECT_TRUE(holds(read_file(run + "/config.json"), seed)) << read_file(run + "/config.json");
      EXPECT_TRUE(holds(read_file(run + "/results.json"), seed)) << read_file(run + "/results.json");
    }
    EXPECT_EQ(done, 1);
  }
}

}  // namespace lock_test
}  // namespace tally::testing
