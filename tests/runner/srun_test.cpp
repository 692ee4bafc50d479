// Processes started by Slurm's srun, simulated by its environment variables (real Slurm: tests/machines/slurm.py).
#include <gtest/gtest.h>

#include "tests/runner/run_files.hpp"

namespace tally::testing::srun_test {

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

}  // namespace tally::testing::srun_test
