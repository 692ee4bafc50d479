// Processes started by Slurm's srun, simulated by its environment variables (real Slurm: tests/machines/slurm.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace srun_test {

namespace fs = std::filesystem;

Finished run_in(std::vector<std::string> environment, const std::vector<std::string>& words,
                const TemporaryFolder& folder) {
  environment.insert(environment.begin(),
                     {"/usr/bin/env", "-u", "OMPI_COMM_WORLD_SIZE", "-u", "PMI_SIZE", "-u", "SLURM_STEP_NUM_TASKS"});
  environment.emplace_back(TALLY_RUNNER);
  environment.insert(environment.end(), words.begin(), words.end());
  return run_program(environment, folder);
}

std::vector<std::string> of_srun(int number) {
  return {"SLURM_NTASKS=2", "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=" + std::to_string(number)};
}

TEST(Srun, ItsProcessesDoNotTrainOneRunEachAndTheFirstSaysWhatDoes) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  for (const bool with_pmi : {false, true}) {  // srun --mpi=pmi2
    for (const int number : {0, 1}) {
      std::vector<std::string> environment = of_srun(number);
      if (with_pmi) environment.emplace_back("PMI_SIZE=2");
      const Finished refused = run_in(environment, tiny_training(run, "none"), folder);
      EXPECT_EQ(refused.code, 2);
      EXPECT_EQ(refused.err,
                number > 0
                    ? ""
                    : "tally: [mpi] srun started 2 processes that do not know of each other; 'mpirun -np 2 tally "
                      "train' within sbatch or salloc shares one run among them, and 'tally sweep --worker', "
                      "which srun may start, many runs\n");
      EXPECT_FALSE(fs::exists(run));
    }
  }
  ASSERT_EQ(run_tally(tiny_training(run, "none"), folder).code, 0);
  const Finished refused = run_in(of_srun(0), {"resume", run}, folder);
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(holds(refused.err, "'mpirun -np 2 tally resume' within sbatch")) << refused.err;
}

TEST(Srun, OneOfItsProcessesPrintsTheHelp) {
  const TemporaryFolder folder;
  const Finished alone = run_tally({"train", "--help"}, folder);
  for (const int number : {0, 1}) {
    const Finished helped = run_in(of_srun(number), {"train", "--help"}, folder);
    EXPECT_EQ(helped.code, 0) << helped.err;
    EXPECT_EQ(helped.out, number == 0 ? alone.out : "");
  }
}

// A batch script is a single process even if its job has several tasks, and so is an srun step with one task.
TEST(Srun, OneProcessOfAJobWithSeveralTasksTrains) {
  const TemporaryFolder folder;
  const std::vector<std::string> script{"SLURM_NTASKS=4", "SLURM_PROCID=0", "SLURM_JOB_ID=7"};
  std::vector<std::string> step = script;
  step.insert(step.end(), {"SLURM_STEP_NUM_TASKS=1", "PMI_SIZE=1"});
  for (const std::vector<std::string>& environment : {script, step}) {
    const Finished trained = run_in(environment, tiny_training(folder / "run", "none", {"--force"}), folder);
    EXPECT_EQ(trained.code, 0) << trained.err;
  }
}

// The workers do not share a run: they coordinate by files.
TEST(Srun, MayStartTheWorkersOfASweep) {
  const TemporaryFolder folder;
  const std::string sweep = folder / "sweep";
  std::vector<std::string> words = tiny_training(sweep, "none", {"--seeds=1..2", "--worker"});
  words[0] = "sweep";
  std::vector<std::string> environment = of_srun(1);
  environment.emplace_back("PMI_SIZE=2");
  const Finished worked = run_in(environment, words, folder);
  EXPECT_EQ(worked.code, 0) << worked.err;
  EXPECT_TRUE(fs::exists(sweep + "/none-seed1/results.json") && fs::exists(sweep + "/none-seed2/results.json"));
}

}  // namespace srun_test
}  // namespace tally::testing
