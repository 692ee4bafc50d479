// ProcessGroup on devices: NCCL's calls on the CPU, over MPI (cuda/emulator/nccl.hpp).
#include <gtest/gtest.h>

#include "tests/runner/rank_runs.hpp"

namespace tally::testing::ranks_device_test {

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

}  // namespace tally::testing::ranks_device_test
