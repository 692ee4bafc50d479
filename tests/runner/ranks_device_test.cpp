// ProcessGroup on devices: NCCL's calls on the CPU, over MPI (cuda/emulator/nccl.hpp).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/runner/rank_runs.hpp"

namespace tally::testing {
namespace ranks_device_test {

// With streams that run in order, but as late as CUDA allows.
TEST_F(RanksOfMpi, OnDevicesTrainTheBytesOfOne) {
  const std::vector<std::string> options{"--device=cuda-host", "--steps=2", "--task.dense-count=1"};
  const std::string alone = folder_ / "alone";
  ASSERT_EQ(run_tally(training(alone, "cope", options), folder_).code, 0);
  expect_bytes_of_one(2, alone, training(folder_ / "two", "cope", options));
  const std::string late = folder_ / "late";
  std::vector<std::string> words = ranks(4, training(late, "cope", options));
  words.insert(words.begin() + 1, {"TALLY_CUDA_DELAY=1", "TALLY_CUDA_PROTECT=1"});
  const Finished finished = run_program(words, folder_);
  ASSERT_EQ(finished.code, 0) << finished.err;
  expect_same_run(late, alone);
}

struct Products {
  std::string encoding, precision;
};

class RanksOfMpiOnDevices : public RanksOfMpi, public ::testing::WithParamInterface<Products> {};

TEST_P(RanksOfMpiOnDevices, TrainTheBytesOfOne) {
  const std::vector<std::string> options{"--device=cuda-host",
                                         "--precision=" + GetParam().precision,
                                         "--steps=1",
                                         "--batch=3",
                                         "--model.layers=1",
                                         "--task.eval-count=2",
                                         "--task.dense-count=1",
                                         "--task.sparse-count=1"};
  const std::string alone = folder_ / "alone";
  ASSERT_EQ(run_tally(training(alone, GetParam().encoding, options), folder_).code, 0);
  expect_bytes_of_one(3, alone, training(folder_ / "three", GetParam().encoding, options));
}

INSTANTIATE_TEST_SUITE_P(All, RanksOfMpiOnDevices,
                         ::testing::Values(Products{"cope", "bf16"}, Products{"cope", "tf32"}, Products{"fox", "f32"},
                                           Products{"fox", "bf16"}, Products{"stick-breaking", "f32"},
                                           Products{"stick-breaking", "tf32"}));

}  // namespace ranks_device_test
}  // namespace tally::testing
