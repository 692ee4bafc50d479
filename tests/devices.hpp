// The devices that tests run on: the CPU, CUDA kernels executed by the CPU, and a GPU where there is one.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "core/backend.hpp"
#include "core/device.hpp"
#include "core/error.hpp"

namespace tally::testing {

inline constexpr Device on_cuda_host{DeviceType::cuda_host, 0};

// Under ThreadSanitizer every thread of a kernel is a fiber of its own, which takes 60 microseconds to make: the large
// shapes of all operations would take hours. There tests on cuda-host keep to small ones, and leave out what calls the
// same kernels again with other numbers. TALLY_TEST_EVERYTHING=1 in the environment leaves out nothing.
inline bool only_small_kernels(Device device) {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  const char* const everything = std::getenv("TALLY_TEST_EVERYTHING");
  return device.type == DeviceType::cuda_host && (everything == nullptr || std::string_view(everything) != "1");
#endif
#endif
  return (void)device, false;
}

// None where this build or this machine has no GPU.
inline std::vector<Device> cuda_devices() {
  try {
    backend({DeviceType::cuda, 0});
    return {{DeviceType::cuda, 0}};
  } catch (const Error&) {
    return {};
  }
}

// Makes the default device that of the test; helpers of tests make their tensors there.
class OnDevice : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override { set_default_device(GetParam()); }
  void TearDown() override { set_default_device({}); }
};

}  // namespace tally::testing

// Every test of `Suite`, an OnDevice, on every device.
#define TALLY_ON_EVERY_DEVICE(Suite)                                                   \
  INSTANTIATE_TEST_SUITE_P(Cpu, Suite, ::testing::Values(Device{}));                   \
  INSTANTIATE_TEST_SUITE_P(CudaHost, Suite, ::testing::Values(testing::on_cuda_host)); \
  INSTANTIATE_TEST_SUITE_P(Cuda, Suite, ::testing::ValuesIn(testing::cuda_devices())); \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Suite)
