// One run by several processes of mpirun equals the run of one process. This holds whichever process is killed, and for
// any number of processes that resume it.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/runner/rank_runs.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace ranks_test {

namespace fs = std::filesystem;

// The process of this rank in the run's process group; 0 if there is none.
pid_t process_of(int rank, const std::string& run) {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string environment = read_file(entry.path().string() + "/environ");
    const std::string command = read_file(entry.path().string() + "/cmdline");
    if (holds(command, run) && holds(environment, "OMPI_COMM_WORLD_RANK=" + std::to_string(rank) + '\0')) {
      return std::stoi(entry.path().filename());
    }
  }
  return 0;
}

struct Precision {
  std::string encoding, precision;
};

class RanksOfMpiTrain : public RanksOfMpi, public ::testing::WithParamInterface<Precision> {};

// Also with three ranks, and with a batch size that does not divide the evaluations.
TEST_P(RanksOfMpiTrain, TheBytesOfOneProcess) {
  const auto& [encoding, precision] = GetParam();
  const std::vector<std::string> options{"--eval-batch=4", "--precision=" + precision};
  const std::string alone = folder_ / "alone";
  ASSERT_EQ(run_tally(training(alone, encoding, options), folder_).code, 0);
  for (const int count : {2, 4}) {
    expect_bytes_of_one(count, alone, training(folder_ / std::to_string(count), encoding, options));
  }
}

INSTANTIATE_TEST_SUITE_P(All, RanksOfMpiTrain,
                         ::testing::Values(Precision{"cope", "f32"}, Precision{"cope", "bf16"}, Precision{"fox", "f32"},
                                           Precision{"fox", "bf16"}, Precision{"stick-breaking", "f32"},
                                           Precision{"stick-breaking", "bf16"}));

TEST_F(RanksOfMpi, ThreeTrainTheBytesOfOneProcess) {
  const std::vector<std::string> options{"--batch=6", "--eval-batch=4"};
  const std::string alone = folder_ / "alone";
  ASSERT_EQ(run_tally(training(alone, "cope", options), folder_).code, 0);
  expect_bytes_of_one(3, alone, training(folder_ / "three", "cope", options));
}

// A bucket holds at least 65,536 numbers. This model has four buckets, and three are sent during backward.
TEST_F(RanksOfMpi, SendSeveralBucketsOfOneProcess) {
  for (const std::string device : {"cpu", "cuda-host"}) {
    const std::vector<std::string> options{"--device=" + device, "--model.width=80", "--model.layers=3",
                                           "--steps=2",          "--batch=4",        "--task.dense-count=1"};
    const std::string alone = folder_ / ("alone-" + device);
    ASSERT_EQ(run_tally(training(alone, "cope", options), folder_).code, 0);
    expect_bytes_of_one(2, alone, training(folder_ / ("two-" + device), "cope", options));
    if (HasFatalFailure()) return;
  }
}

// Specifying the number of micro-batches equals specifying their size.
TEST_F(RanksOfMpi, MicroBatchesMayBeGivenByTheirNumber) {
  const std::string alone = folder_ / "alone", run = folder_ / "run";
  ASSERT_EQ(run_tally(training(alone, "cope", {"--batch=8", "--micro-batch=2"}), folder_).code, 0);
  const Finished finished =
      run_program(ranks(4, training(run, "cope", {"--batch=8", "--micro-batch=0", "--micro-batches=4"})), folder_);
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(checkpoints_of(run) == checkpoints_of(alone));
}

TEST_F(RanksOfMpi, GenerateTheAnswersOfOneProcess) {
  const auto words = [](const std::string& run) {
    return std::vector<std::string>{"train",
                                    run,
                                    "--task=selective-copy",
                                    "--pe=cope+rope",
                                    "--preset=quick",
                                    "--model.width=8",
                                    "--batch=4",
                                    "--micro-batch=2",
                                    "--steps=2",
                                    "--eval-every=0",
                                    "--optimiser.warmup=0",
                                    "--task.eval-count=5",
                                    "--eval-batch=2",
                                    "--threads=1",
                                    "--eval-generated",
                                    "--quiet"};
  };
  const std::string alone = folder_ / "alone";
  ASSERT_EQ(run_tally(words(alone), folder_).code, 0);
  expect_bytes_of_one(2, alone, words(folder_ / "run"));
}

// Each rank holds the optimiser state of its share. A run resumes from it with split or whole state.
TEST_F(RanksOfMpi, SplitTheOptimisersState) {
  for (const std::string rule : {"adamw", "sgd"}) {
    const std::vector<std::string> options{"--optimiser.name=" + rule, "--optimiser.clip=0.1"};
    const std::string alone = folder_ / ("alone-" + rule), run = folder_ / ("run-" + rule);
    ASSERT_EQ(run_tally(training(alone, "cope", options), folder_).code, 0);
    std::vector<std::string> words = training(run, "cope", options);
    words.emplace_back("--split-optimiser");
    expect_bytes_of_one(4, alone, words);
    if (HasFatalFailure()) return;
    for (const bool split : {false, true}) {  // resumes from step 2
      fs::remove(run + "/results.json");
      fs::remove(run + "/checkpoints/" + newest_checkpoint(run));
      std::vector<std::string> resuming{"resume", run, "--threads=1", "--quiet"};
      if (split) resuming.emplace_back("--split-optimiser");
      const Finished resumed = run_program(ranks(2, resuming), folder_);
      ASSERT_EQ(resumed.code, 0) << resumed.err;
      expect_same_run(run, alone);
    }
  }
  const std::string device = folder_ / "device", on_device = folder_ / "on-device";
  std::vector<std::string> words = training(device, "cope", {"--device=cuda-host", "--steps=2"});
  ASSERT_EQ(run_tally(words, folder_).code, 0);
  words[1] = on_device;
  words.emplace_back("--split-optimiser");
  expect_bytes_of_one(2, device, words);
}

// Killed with four ranks, then with two, and finished by one process.
TEST_F(RanksOfMpi, AKilledRankEndsAllAndTheRunGoesOnWithAnotherNumber) {
  const std::vector<std::string> options{"--steps=60", "--save-every=5", "--eval-every=30"};
  const std::string alone = folder_ / "alone", run = folder_ / "run";
  ASSERT_EQ(run_tally(training(alone, "cope", options), folder_).code, 0);
  std::mt19937 random(20261124);
  for (const int count : {4, 2}) {
    const std::vector<std::string> words =
        count == 4 ? training(run, "cope", options) : std::vector<std::string>{"resume", run, "--threads=1", "--quiet"};
    const std::string before = newest_checkpoint(run);
    const pid_t process = start_program(ranks(count, words), folder_, "ranks");
    EXPECT_TRUE(comes_true([&] { return newest_checkpoint(run) > before; }));
    const int rank = static_cast<int>(random() % static_cast<unsigned>(count));
    const pid_t victim = process_of(rank, run);
    ASSERT_GT(victim, 0);
    send_signal(victim, SIGKILL);
    const Finished ended = finish_program(process, folder_, "ranks");
    EXPECT_NE(ended.code, 0);
    EXPECT_TRUE(holds(ended.err, "rank " + std::to_string(rank))) << ended.err;
    EXPECT_FALSE(fs::exists(run + "/results.json"));
  }
  const Finished resumed = run_tally({"resume", run, "--threads=1", "--quiet"}, folder_);
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
  const Finished device = run_program(ranks(2, training(folder_ / "run", "cope", {"--device=cuda:1"})), folder_);
  EXPECT_EQ(device.code, 2);
  EXPECT_TRUE(holds(device.err,
                    "tally: rank 0 of 2: [mpi] --device cuda:1 is one GPU; of several processes each takes "
                    "the one of its number on its machine: --device cuda"))
      << device.err;
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

TEST_F(RanksOfMpi, WhatIsTheWorkOfOneIsRefusedOnce) {
  for (const std::string command : {"sweep", "describe", "eval"}) {
    const Finished refused = run_program(ranks(2, {command, folder_ / "runs"}), folder_);
    EXPECT_EQ(refused.code, 2);
    EXPECT_TRUE(holds(refused.err, "tally: [mpi] mpirun started 2 processes, and 'tally " + command +
                                       "' is the work of one; train and resume share a run"))
        << refused.err;
    EXPECT_EQ(refused.err.find("tally: "), refused.err.rfind("tally: ")) << refused.err;
    EXPECT_FALSE(fs::exists(folder_ / "runs"));
  }
}

TEST_F(RanksOfMpi, OneSaysWhatAllWouldSay) {
  const std::vector<std::vector<std::string>> said{{"--help"},          {"help"},       {"--version"}, {}, {"trian"},
                                                   {"train", "--help"}, {"sweep", "-h"}};
  for (const std::vector<std::string>& words : said) {
    const Finished alone = run_tally(words, folder_);
    const Finished together = run_program(ranks(2, words), folder_);
    EXPECT_EQ(together.code, alone.code);
    EXPECT_EQ(together.out, alone.out);
    EXPECT_TRUE(together.err.starts_with(alone.err)) << together.err;
    EXPECT_EQ(together.err.find("tally: "), together.err.rfind("tally: ")) << together.err;
  }
}

TEST(RanksWithoutMpi, AProgramThatMpirunStartedSaysThatMpiIsMissing) {
  const TemporaryFolder folder;
  // Also if MPI is installed: the first file found is not a library.
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

}  // namespace ranks_test
}  // namespace tally::testing
