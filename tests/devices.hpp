// The devices that tests run on: the CPU, CUDA kernels executed by the CPU, and a GPU where there is one.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "core/backend.hpp"
#include "core/device.hpp"
#include "core/error.hpp"

namespace tally::testing {

inline constexpr Device on_cuda_host{DeviceType::cuda_host, 0};

// Under ThreadSanitizer kernels on cuda-host are some hundred times slower. What calls them again and again with other
// numbers, or compares types, shows no race that one call does not show, and is left out there.
inline bool repeats_kernels_in_vain(Device device) {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  return device.type == DeviceType::cuda_host;
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
