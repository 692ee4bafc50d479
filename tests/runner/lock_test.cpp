// Several processes and one folder: only one trains in it, and no other can take it over.
#include <gtest/gtest.h>
#include <sys/file.h>

#include "core/io/file_descriptor.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::lock_test {

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

class Lock : public Program {};

TEST_F(Lock, ForceDoesNotMoveARunAtWork) {
  const pid_t process = start(tiny("run", "none", "--steps=1000000 --save-every=1000000"), "first");
  EXPECT_TRUE(comes_true([&] { return lines_of(folder_ / "run/metrics.jsonl") >= 3; }));
  const std::string config = file("run/config.json");
  refused(tiny("run", "rope", "--force"), "another process is training in 'run'", 1);
  EXPECT_FALSE(exists("run.old"));
  EXPECT_EQ(file("run/config.json"), config);
  send_signal(process, SIGKILL);
  finish(process, "first");
  done(tiny("run", "rope", "--force"));
  EXPECT_EQ(file("run.old/config.json"), config);
}

TEST_F(Lock, ForceDoesNotMoveASweepWithARunAtWork) {
  done(tiny("sweep/cope-seed1", "cope"));
  {
    const FileDescriptor lock = lock_of(folder_ / "sweep/cope-seed1");
    refused(tiny("sweep", "none", "--force"), "another process is training in 'sweep/cope-seed1'", 1);
    EXPECT_EQ(names_in(folder_.path().string()), (std::vector<std::string>{"program.err", "program.out", "sweep"}));
  }
  done(tiny("sweep", "none", "--force"));
}

// Before its configuration is written.
TEST_F(Lock, ANewRunTakesItFirst) {
  std::filesystem::create_directory(folder_ / "run");
  const FileDescriptor lock = lock_of(folder_ / "run");
  refused(tiny("run", "none"), "another process is training", 1);
  EXPECT_TRUE(names_in(folder_ / "run").empty());
}

TEST_F(Lock, OfRunsStartedTogetherOneGoesOn) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    const std::string run = formatted("run{}", attempt);
    std::vector<pid_t> processes;
    const auto name = [](std::size_t seed) { return formatted("\"seed\": {}", seed); };
    for (std::size_t seed = 1; seed <= 4; ++seed) {
      processes.push_back(start(tiny(run, "none", formatted("--steps=30 --seed={}", seed)), name(seed)));
    }
    int trained = 0;
    for (std::size_t seed = 1; seed <= 4; ++seed) {
      const Finished result = finish(processes[seed - 1], name(seed));
      if (result.code != 0) {
        EXPECT_EQ(result.code, 1);
        EXPECT_TRUE(holds(result.err, "another process") || holds(result.err, "holds a run already")) << result.err;
        continue;
      }
      ++trained;
      for (const std::string of : {"/config.json", "/results.json"}) expect_parts(file(run + of), {name(seed)});
    }
    EXPECT_EQ(trained, 1);
  }
}

}  // namespace tally::testing::lock_test
