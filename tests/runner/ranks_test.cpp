// One run by several processes of mpirun equals the run of one process, even if any of them is killed, and for any
// number of processes that resume it.
#include <gtest/gtest.h>

#include <random>

#include "tests/runner/rank_runs.hpp"

namespace tally::testing::ranks_test {

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

class RanksOfMpiTrain : public RanksOfMpi, public ::testing::WithParamInterface<const char*> {};

// Also with a batch size that does not divide the evaluations.
TEST_P(RanksOfMpiTrain, TheBytesOfOneProcess) {
  const std::vector<std::string> how = words_of(GetParam());
  expect_same_bytes({2, 4}, how[0], "--eval-batch=4 --precision=" + how[1]);
}

INSTANTIATE_TEST_SUITE_P(All, RanksOfMpiTrain,
                         ::testing::Values("cope f32", "cope bf16", "fox f32", "fox bf16", "stick-breaking f32",
                                           "stick-breaking bf16"));

TEST_F(RanksOfMpi, ThreeTrainTheBytesOfOneProcess) { expect_same_bytes({3}, "cope", "--batch=6 --eval-batch=4"); }

// A bucket holds at least 65,536 numbers. This model has four buckets, and three are sent during backward.
TEST_F(RanksOfMpi, SendSeveralBucketsOfOneProcess) {
  for (const std::string device : {"cpu", "cuda-host"}) {
    expect_same_bytes({2}, "cope",
                      "--model.width=80 --model.layers=3 --steps=2 --batch=4 --task.dense-count=1 --device=" + device);
    if (HasFatalFailure()) return;
  }
}

TEST_F(RanksOfMpi, GenerateTheAnswersOfOneProcess) {
  const auto line = [](const std::string& run) {
    return "train " + run +
           " --task=selective-copy --pe=cope+rope --preset=quick --model.width=8 --batch=4 --micro-batch=2 --steps=2"
           " --eval-every=0 --optimiser.warmup=0 --task.eval-count=5 --eval-batch=2 --threads=1 --eval-generated "
           "--quiet";
  };
  done(line("alone"));
  expect_bytes_of_one(2, "alone", "run", line("run"), folder_);
}

// Each rank holds the optimiser state of its share. A run resumes from it with split or whole state.
TEST_F(RanksOfMpi, SplitTheOptimisersState) {
  for (const std::string rule : {"adamw", "sgd"}) {
    expect_same_bytes({4}, "cope", "--optimiser.clip=0.1 --optimiser.name=" + rule, " --split-optimiser");
    if (HasFatalFailure()) return;
    const std::string run = formatted("run-{}-4", trained_);
    for (const char* split : {"", " --split-optimiser"}) {  // resumes from step 2
      fs::remove(folder_ / run + "/results.json");
      fs::remove(folder_ / run + "/checkpoints/" + newest_checkpoint(folder_ / run));
      const Finished resumed = run_ranks(2, "resume " + run + " --threads=1 --quiet" + split);
      ASSERT_EQ(resumed.code, 0) << resumed.err;
      expect_same_run(folder_ / run, folder_ / formatted("alone-{}", trained_));
    }
  }
  expect_same_bytes({2}, "cope", "--device=cuda-host --steps=2", " --split-optimiser");
}

// Killed with four ranks, then with two, and finished by one process.
TEST_F(RanksOfMpi, AKilledRankEndsAllAndTheRunGoesOnWithAnotherNumber) {
  const std::string options = "--steps=60 --save-every=5 --eval-every=30", run = folder_ / "run";
  done(training("alone", "cope", options));
  std::mt19937 random(20261124);
  for (const int count : {4, 2}) {
    // Absolute, so that process_of finds the run.
    const std::string line = count == 4 ? training(run, "cope", options) : "resume " + run + " --threads=1 --quiet";
    const std::string before = newest_checkpoint(run);
    const pid_t process = start_program(ranks(count, line), folder_, "ranks");
    EXPECT_TRUE(comes_true([&] { return newest_checkpoint(run) > before; }));
    const int rank = static_cast<int>(random() % static_cast<unsigned>(count));
    const pid_t victim = process_of(rank, run);
    ASSERT_GT(victim, 0);
    send_signal(victim, SIGKILL);
    const Finished ended = finish(process, "ranks");
    EXPECT_NE(ended.code, 0);
    expect_parts(ended.err, {formatted("rank {}", rank)});
    EXPECT_FALSE(exists("run/results.json"));
  }
  done("resume run --threads=1 --quiet");
  expect_same_run(run, folder_ / "alone");
}

TEST_F(RanksOfMpi, WhatAllRanksFindIsSaidOnce) {
  refused_once(2, tiny("run", "cope"), "[mpi]");  // one micro-batch, and two ranks
  refused_once(4, tiny("run", "cope", "--micro-batch=2"),
               "tally: rank 0 of 4: [mpi] 4 processes share the micro-batches of a step, and 2 are enough for 2");
  refused_once(2, training("run", "cope", "--device=cuda:1"),
               "tally: rank 0 of 2: [mpi] --device cuda:1 is one GPU; of several processes each takes "
               "the one of its number on its machine: --device cuda");
  for (const std::string command : {"sweep", "describe", "eval"}) {
    refused_once(2, command + " run",
                 "tally: [mpi] mpirun started 2 processes, and 'tally " + command +
                     "' is the work of one; train and resume share a run");
  }
  EXPECT_FALSE(exists("run"));
}

TEST_F(RanksOfMpi, WhatOneRankFindsEndsAllAndNamesIt) {
  std::vector<std::string> words = ranks(1, training("run", "cope", "--steps=1000000"));
  for (const std::string word : {":", "-np", "1", TALLY_RUNNER}) words.push_back(word);
  for (const std::string& word : words_of(training("run", "cope", "--steps=1000000 --optimiser.lr=-1"))) {
    words.push_back(word);
  }
  const Finished ended = run_program(words, folder_);
  EXPECT_EQ(ended.code, 2);
  EXPECT_TRUE(holds(ended.err, "tally: rank 1 of 2: ")) << ended.err;
  EXPECT_EQ(ended.err.find("tally: "), ended.err.rfind("tally: ")) << ended.err;
}

class RanksWithoutMpi : public Program {};

// Also if MPI is installed: the first file found is not a library.
TEST_F(RanksWithoutMpi, AProgramThatMpirunStartedSaysThatMpiIsMissing) {
  for (const char* name : {"libmpi.so.40", "libmpi.so"}) write_file(folder_ / name, "none");
  for (const auto& [environment, message] :
       {std::pair{"LD_LIBRARY_PATH=$PWD OMPI_COMM_WORLD_SIZE=2", "OpenMPI cannot be loaded (libopenmpi3)"},
        {"PMI_SIZE=2", "started as one of 2 processes by an mpirun that is not OpenMPI's"}}) {
    const Finished refused =
        shell(std::string("unset OMPI_COMM_WORLD_SIZE; ") + environment + " '" TALLY_RUNNER "' " + tiny("run", "none"));
    EXPECT_EQ(refused.code, 1);
    expect_parts(refused.err, {message});
  }
}

}  // namespace tally::testing::ranks_test
