// NCCL's calls on the CPU: arguments that NCCL refuses, or relies on, are checked. Whole runs test the messages between
// ranks (tests/runner/ranks_test.cpp).
#include <gtest/gtest.h>

#include <string>

#include "core/distributed/gradient_reducer.hpp"
#include "core/distributed/process_group.hpp"
#include "core/error.hpp"
#include "cuda/distributed/nccl.hpp"
#include "cuda/runtime/context.hpp"

namespace tally::cuda_host {
namespace {

class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    stream_ = context().stream;
    CUDA_CHECK(cudaMallocAsync(&block_, 64, stream_));
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ASSERT_EQ(ncclCommInitRank(&communicator_, 1, id, 0), ncclSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(ncclCommDestroy(communicator_), ncclSuccess);
    CUDA_CHECK(cudaFreeAsync(block_, stream_));
  }
  ncclResult_t send(const void* data, std::size_t count, ncclDataType_t type, int peer) {
    return ncclSend(data, count, type, peer, communicator_, stream_);
  }

  cudaStream_t stream_ = nullptr;
  void* block_ = nullptr;
  ncclComm_t communicator_ = nullptr;
};

TEST_F(Nccl, RefusesWrongArguments) {
  float on_host = 0;
  EXPECT_EQ(send(&on_host, 1, ncclFloat32, 0), ncclInvalidArgument) << "memory of the host";
  EXPECT_EQ(send(block_, 17, ncclFloat32, 0), ncclInvalidArgument) << "one element too many";
  EXPECT_EQ(send(block_, 9, ncclFloat64, 0), ncclInvalidArgument) << "one element too many";
  EXPECT_EQ(send(block_, 1, static_cast<ncclDataType_t>(99), 0), ncclInvalidArgument) << "no type";
  EXPECT_EQ(send(block_, 1, ncclFloat32, 1), ncclInvalidArgument) << "no such rank";
  EXPECT_EQ(send(block_, 1, ncclFloat32, -1), ncclInvalidArgument) << "no such rank";
  EXPECT_EQ(send(block_, 1, ncclFloat32, 0), ncclInvalidUsage) << "to itself";
  EXPECT_EQ(ncclSend(block_, 1, ncclFloat32, 0, nullptr, stream_), ncclInvalidArgument) << "no communicator";
  EXPECT_EQ(ncclRecv(block_, 1, ncclFloat32, 0, communicator_, nullptr), ncclInvalidArgument) << "no stream";
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << "no group was begun";
  EXPECT_EQ(ncclCommDestroy(nullptr), ncclInvalidArgument);
}

TEST_F(Nccl, RefusesOtherRanksThanThereAre) {
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(nullptr), ncclInvalidArgument);
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t none = nullptr;
  EXPECT_EQ(ncclCommInitRank(&none, 2, id, 0), ncclInvalidUsage);
  EXPECT_EQ(ncclCommInitRank(&none, 1, id, 1), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument);
  EXPECT_EQ(none, nullptr);
}

TEST_F(Nccl, FailuresNameTheCall) {
  try {
    NCCL_CHECK(ncclGroupEnd());
    FAIL() << "a group ended that was not begun";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("[nccl] ncclGroupEnd() failed: invalid usage"), std::string::npos)
        << error.what();
  }
}

// One rank sends nothing: its sum is its own value, computed by the kernel that adds.
TEST_F(Nccl, OfOneRankChangesNothing) {
  const Device device{DeviceType::cuda_host, 0};
  const std::unique_ptr<GradientReducer> exchange = tally::make_gradient_reducer(ProcessGroup::one(), device);
  const std::vector<float> values{1, -2, 3.5F};
  const Tensor bucket = Tensor::from(values, {3}, device);
  exchange->begin(bucket, 1);
  exchange->finish();
  EXPECT_EQ(bucket.to_vector<float>(), values);
}

}  // namespace
}  // namespace tally::cuda_host
