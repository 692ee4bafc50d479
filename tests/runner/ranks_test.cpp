// One run by several processes that mpirun starts: the bytes of one process, whichever dies and with how many it goes
// on.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* mpirun = "/usr/bin/mpirun";

class RanksOfMpi : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(mpirun)) GTEST_SKIP() << "no OpenMPI here (" << mpirun << "); tests/install.sh --with-mpi";
#ifdef TALLY_SANITIZED
    GTEST_SKIP() << "OpenMPI is not built for sanitizers";
#endif
  }
  // The words of tally in so many processes of this machine, without asking for another one.
  static std::vector<std::string> ranks(int count, const std::vector<std::string>& arguments) {
    std::vector<std::string> words{"/usr/bin/env",
                                   "OMPI_ALLOW_RUN_AS_ROOT=1",
                                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                   mpirun,
                                   "--oversubscribe",
                                   "--bind-to",
                                   "none",
                                   "--mca",
                                   "plm",
                                   "isolated",
                                   "-np",
                                   std::to_string(count),
                                   TALLY_RUNNER};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }
  std::vector<std::string> training(const std::string& run, const std::string& encoding,
                                    std::vector<std::string> options = {}) const {
    for (const char* option : {"--batch=6", "--micro-batch=1", "--model.dropout=0.1"}) options.emplace_back(option);
    return tiny_training(run, encoding, options);
  }

  TemporaryFolder folder_;
};

// Three ranks too, of which the last has fewer micro-batches, and a batch size that evaluations do not divide by.
TEST_F(RanksOfMpi, TrainTheBytesOfOneProcess) {
  const std::vector<std::string> odd{"--eval-batch=4"};
  for (const std::string encoding : {"cope", "fox", "stick-breaking"}) {
    const std::string alone = folder_ / ("alone-" + encoding);
    ASSERT_EQ(run_tally(training(alone, encoding, odd), folder_).code, 0);
    for (const int count : {2, 3}) {
      if (count == 3 && encoding != "cope") continue;  // two tell already what the encoding does
      const std::string run = folder_ / (encoding + std::to_string(count));
      const Finished finished = run_program(ranks(count, training(run, encoding, odd)), folder_);
      ASSERT_EQ(finished.code, 0) << finished.err;
      expect_same_run(run, alone);
      EXPECT_EQ(results_of(run), results_of(alone));
      const std::size_t first = finished.out.find("in-distribution");
      EXPECT_NE(first, std::string::npos) << finished.out;
    }
  }
}

TEST_F(RanksOfMpi, AKilledRankEndsAllAndTheRunGoesOnWithAnotherNumber) {
  const std::vector<std::string> options{"--steps=60", "--save-every=10", "--eval-every=30"};
  const std::string alone = folder_ / "alone", run = folder_ / "run";
  ASSERT_EQ(run_tally(training(alone, "cope", options), folder_).code, 0);
  const pid_t process = start_program(ranks(2, training(run, "cope", options)), folder_, "two");
  EXPECT_TRUE(comes_true([&] { return !names_of_checkpoints(run).empty(); }));
  // The rank that is not the one which writes: a child of mpirun that tally's metrics are not open in.
  pid_t victim = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string environment = read_file(entry.path().string() + "/environ");
    const std::string command = read_file(entry.path().string() + "/cmdline");
    if (holds(command, run) && holds(environment, "OMPI_COMM_WORLD_RANK=1"))
      victim = std::stoi(entry.path().filename());
  }
  ASSERT_GT(victim, 0);
  send_signal(victim, SIGKILL);
  const Finished ended = finish_program(process, folder_, "two");
  EXPECT_NE(ended.code, 0);
  EXPECT_TRUE(holds(ended.err, "rank 1")) << ended.err;
  EXPECT_FALSE(fs::exists(run + "/results.json"));
  const Finished resumed = run_program(ranks(3, {"resume", run, "--threads=1", "--quiet"}), folder_);
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  expect_same_run(run, alone);
}

TEST_F(RanksOfMpi, WhatAllRanksFindIsSaidOnce) {
  const Finished whole = run_program(ranks(2, tiny_training(folder_ / "run", "cope")), folder_);
  EXPECT_EQ(whole.code, 2) << "one micro-batch, and two ranks";
  const Finished many = run_program(ranks(4, tiny_training(folder_ / "run", "cope", {"--micro-batch=2"})), folder_);
  EXPECT_EQ(many.code, 2);
  const std::string why =
      "tally: rank 0 of 4: [mpi] 4 processes share the micro-batches of a step, and 2 are enough for 2";
  EXPECT_TRUE(holds(many.err, why)) << many.err;
  EXPECT_EQ(many.err.find("tally: "), many.err.rfind("tally: ")) << many.err;
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(RanksOfMpi, WhatOneRankFindsEndsAllAndNamesIt) {
  const std::string run = folder_ / "run";
  std::vector<std::string> words = ranks(1, training(run, "cope", {"--steps=1000000"}));
  for (const std::string word : {":", "-np", "1", TALLY_RUNNER}) words.push_back(word);
  for (const std::string& word : training(run, "cope", {"--steps=1000000", "--optimiser.lr=-1"})) words.push_back(word);
  const Finished ended = run_program(words, folder_);
  EXPECT_EQ(ended.code, 2);
  EXPECT_TRUE(holds(ended.err, "tally: rank 1 of 2: ")) << ended.err;
  EXPECT_EQ(ended.err.find("tally: "), ended.err.rfind("tally: ")) << ended.err;
}

TEST(RanksWithoutMpi, AProgramThatMpirunStartedSaysThatMpiIsMissing) {
  const TemporaryFolder folder;
  // Also where it is installed: what is found first is no library.
  for (const char* name : {"libmpi.so.40", "libmpi.so"}) write_file(folder / name, "none");
  std::vector<std::string> words{"/usr/bin/env", "LD_LIBRARY_PATH=" + folder.path().string(), "OMPI_COMM_WORLD_SIZE=2",
                                 TALLY_RUNNER};
  for (const std::string& word : tiny_training(folder / "run", "none")) words.push_back(word);
  const Finished refused = run_program(words, folder);
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(holds(refused.err, "OpenMPI cannot be loaded (libopenmpi3)")) << refused.err;
}

TEST(RanksWithoutMpi, AnotherMpirunIsRefused) {
  const TemporaryFolder folder;
  std::vector<std::string> words{"/usr/bin/env", "-u", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE=2", TALLY_RUNNER};
  for (const std::string& word : tiny_training(folder / "run", "none")) words.push_back(word);
  const Finished refused = run_program(words, folder);
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(holds(refused.err, "started as one of 2 processes by an mpirun that is not OpenMPI's")) << refused.err;
}

}  // namespace
}  // namespace tally::testing
