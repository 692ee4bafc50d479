// One run by several processes of mpirun equals the run of one process, even if any of them is killed, and for any
// number of processes that resume it; on devices NCCL's calls run on the CPU, over MPI (cuda/emulator/nccl.hpp). Also
// processes started by Slurm's srun, simulated by its environment variables (real Slurm: tests/machines/slurm.py).
#include <gtest/gtest.h>

#include <random>

#include "tests/runner/run_files.hpp"
#include "tests/runner/text_runs.hpp"

namespace tally::testing::ranks_test {

namespace fs = std::filesystem;

constexpr const char* mpirun = "/usr/bin/mpirun";

// The reason why ranks cannot share a run here; "" if they can.
std::string no_ranks() {
#ifdef TALLY_SANITIZED
  return "OpenMPI is not built for sanitizers";
#else
  return std::filesystem::exists(mpirun) ? ""
                                         : std::string("no OpenMPI here (") + mpirun + "); tests/install.sh --with-mpi";
#endif
}

// A tally command in `count` processes on this machine, without contacting another one.
std::vector<std::string> ranks(int count, const std::string& line) {
  std::vector<std::string> words = words_of(formatted(
      "/usr/bin/env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 {} --oversubscribe --bind-to none --mca "
      "plm isolated -np {} {}",
      mpirun, count, TALLY_RUNNER));
  for (const std::string& word : words_of(line)) words.push_back(word);
  return words;
}

// Compares a run of `count` ranks with an existing run of one process.
void expect_bytes_of_one(int count, const std::string& alone, const std::string& run, const std::string& line,
                         const TemporaryFolder& folder) {
  const Finished finished = run_program(ranks(count, line), folder);
  ASSERT_EQ(finished.code, 0) << finished.err;
  expect_same_run(folder / run, folder / alone);
  EXPECT_EQ(results_of(folder / run), results_of(folder / alone));
  EXPECT_FALSE(finished.out.empty()) << "the first prints";
}

class RanksOfMpi : public Program {
 protected:
  void SetUp() override {
    if (const std::string why = no_ranks(); !why.empty()) GTEST_SKIP() << why;
  }
  // Seven micro-batches by default; with four ranks the last rank has one.
  static std::string training(const std::string& run, const std::string& encoding, std::string options = "") {
    for (const std::string option : {"--batch=7", "--micro-batch=1", "--model.dropout=0.1"}) {
      if (!holds(options, option.substr(0, option.find('=') + 1))) options += " " + option;
    }
    return tiny(run, encoding, options);
  }
  Finished run_ranks(int count, const std::string& line) const { return run_program(ranks(count, line), folder_); }
  // Trains with one process, and compares each number of ranks with it.
  void expect_same_bytes(const std::vector<int>& counts, const std::string& encoding, const std::string& options,
                         const std::string& more = "") {
    const std::string alone = formatted("alone-{}", ++trained_);
    done(training(alone, encoding, options));
    for (const int count : counts) {
      const std::string run = formatted("run-{}-{}", trained_, count);
      expect_bytes_of_one(count, alone, run, training(run, encoding, options) + more, folder_);
      if (HasFatalFailure()) return;
    }
  }
  // Refused once, although every rank finds it.
  void refused_once(int count, const std::string& line, const std::string& message) {
    const Finished finished = run_ranks(count, line);
    EXPECT_EQ(finished.code, 2) << line;
    EXPECT_TRUE(holds(finished.err, message)) << finished.err;
    EXPECT_EQ(finished.err.find("tally: "), finished.err.rfind("tally: ")) << finished.err;
  }

  int trained_ = 0;
};

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

// With streams that run in order, but as late as CUDA allows.
TEST_F(RanksOfMpi, OnDevicesTrainTheBytesOfOne) {
  const std::string options = "--device=cuda-host --steps=2 --task.dense-count=1";
  expect_same_bytes({2}, "cope", options);
  std::vector<std::string> words = ranks(4, training("late", "cope", options));
  words.insert(words.begin() + 1, {"TALLY_CUDA_DELAY=1", "TALLY_CUDA_PROTECT=1"});
  const Finished finished = run_program(words, folder_);
  ASSERT_EQ(finished.code, 0) << finished.err;
  expect_same_run(folder_ / "late", folder_ / "alone-1");
}

class RanksOfMpiOnDevices : public RanksOfMpi, public ::testing::WithParamInterface<const char*> {};

TEST_P(RanksOfMpiOnDevices, TrainTheBytesOfOne) {
  const std::vector<std::string> products = words_of(GetParam());
  expect_same_bytes({3}, products[0],
                    "--device=cuda-host --steps=1 --batch=3 --model.layers=1 --task.eval-count=2 --task.dense-count=1 "
                    "--task.sparse-count=1 --precision=" +
                        products[1]);
}

INSTANTIATE_TEST_SUITE_P(All, RanksOfMpiOnDevices,
                         ::testing::Values("cope bf16", "cope tf32", "fox f32", "fox bf16", "stick-breaking f32",
                                           "stick-breaking tf32"));

// The estimate of a dry run equals the memory of the first rank. On the CPU, the number of buckets in flight depends on
// the other ranks: there is one, or the estimate is an upper bound.
TEST_F(RanksOfMpi, TakeTheMemoryThatIsToldBefore) {
  struct Case {
    std::string name;
    int count;
    std::string options;
  };
  const std::string device = "--device=cuda-host --task.dense-count=1 --steps=2 --batch=2 ";
  for (const auto& [name, count, options] : std::vector<Case>{
           {"alone", 1, "--model.width=48"},
           {"two", 2, "--model.width=48"},
           {"four", 4, "--model.width=48"},
           {"split", 4, "--model.width=48 --split-optimiser"},
           {"sgd", 2, "--model.width=48 --split-optimiser --optimiser.name=sgd"},
           {"evaluation", 2, "--micro-batch=2 --batch=4 --eval-batch=64 --task.eval-count=150"},
           {"buckets", 2,
            "--model.width=96 --length=8 --batch=2 --task.eval-count=1 --task.sparse-count=1 --task.dense-count=1"},
           {"device", 2, device},
           {"split-device", 2, device + "--model.width=80 --split-optimiser"}}) {
    const std::string line = training(name, "cope", options);
    const Finished trained = run_ranks(count, line);
    ASSERT_EQ(trained.code, 0) << trained.err;
    const double taken = file_json(name + "/results.json").real("peak_tensor_bytes");
    const Finished dry = run_ranks(count, line + " --dry-run --json");
    ASSERT_EQ(dry.code, 0) << dry.err;
    const JsonValue plan = parse_json(dry.out, {}, "plan");
    const double told = plan.real("memory_bytes"), gradients = 4 * plan.real("parameters");
    EXPECT_EQ(plan.boolean("memory_at_most"), count > 1 && !holds(options, "cuda-host")) << name;
    if (name == "buckets") {
      EXPECT_LE(taken, told);
      EXPECT_GE(taken, told - gradients / count);
    } else {
      EXPECT_EQ(taken, told) << name;
    }
  }
}

class RanksOfMpiOnTexts : public TextRuns {
 protected:
  void SetUp() override {
    if (const std::string why = no_ranks(); !why.empty()) GTEST_SKIP() << why;
    TextRuns::SetUp();
  }
};

// With separate texts, the parts of a batch differ in length, and their number differs between steps.
TEST_F(RanksOfMpiOnTexts, TrainTheBytesOfOneProcess) {
  for (const std::string documents : {"joined", "separate"}) {
    const std::string options = "--micro-batch=1 --model.dropout=0.1 --threads=1 --task.documents=" + documents;
    done(training(documents, options));
    for (const int count : {2, 4}) {
      const std::string run = formatted("{}-{}", count, documents);
      expect_bytes_of_one(count, documents, run, training(run, options), folder_);
      if (HasFatalFailure()) return;
    }
  }
}

class Srun : public Program {
 protected:
  Finished run_in(const std::string& environment, const std::string& line) const {
    return shell("unset OMPI_COMM_WORLD_SIZE PMI_SIZE SLURM_STEP_NUM_TASKS; " + environment + " '" TALLY_RUNNER "' " +
                 line);
  }
  static std::string of_srun(int number) {
    return formatted("SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID={}", number);
  }
};

TEST_F(Srun, ItsProcessesDoNotTrainOneRunEachAndTheFirstSaysWhatDoes) {
  for (const std::string pmi : {"", " PMI_SIZE=2"}) {  // srun --mpi=pmi2
    for (const int number : {0, 1}) {
      const Finished refused = run_in(of_srun(number) + pmi, tiny("run", "none"));
      EXPECT_EQ(refused.code, 2);
      EXPECT_EQ(refused.err,
                number > 0
                    ? ""
                    : "tally: [mpi] srun started 2 processes that do not know of each other; 'mpirun -np 2 tally "
                      "train' within sbatch or salloc shares one run among them, and 'tally sweep --worker', "
                      "which srun may start, many runs\n");
      EXPECT_FALSE(exists("run"));
    }
  }
}

TEST_F(Srun, OneOfItsProcessesPrintsTheHelp) {
  for (const int number : {0, 1}) {
    const Finished helped = run_in(of_srun(number), "train --help");
    EXPECT_EQ(helped.code, 0) << helped.err;
    EXPECT_EQ(helped.out, number == 0 ? done("train --help") : "");
  }
}

// A batch script is a single process even if its job has several tasks, and so is an srun step with one task. The
// workers of a sweep do not share a run: they coordinate by files.
TEST_F(Srun, OneProcessOfAJobWithSeveralTasksTrains) {
  const std::string script = "SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_JOB_ID=7";
  for (const std::string step : {"", " SLURM_STEP_NUM_TASKS=1 PMI_SIZE=1"}) {
    const Finished trained = run_in(script + step, tiny("run", "none", "--force"));
    EXPECT_EQ(trained.code, 0) << trained.err;
  }
  const Finished worked = run_in(of_srun(1) + " PMI_SIZE=2", tiny("sweep", "none", "--seeds=1..2 --worker", "sweep"));
  EXPECT_EQ(worked.code, 0) << worked.err;
  EXPECT_TRUE(exists("sweep/none-seed1/results.json") && exists("sweep/none-seed2/results.json"));
}

}  // namespace tally::testing::ranks_test
