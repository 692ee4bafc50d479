// The devices that tests run on: the CPU, CUDA kernels executed by the CPU, and a GPU if there is one.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "core/device/backend.hpp"
#include "core/device/device.hpp"
#include "core/error.hpp"

namespace tally::testing {

inline constexpr Device on_cuda_host{DeviceType::cuda_host, 0};

// Whether the environment has NAME=1.
inline bool asked_for(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && std::string_view(value) == "1";
}

// Whether a sanitizer watches this build, which makes it two to ten times slower.
#ifdef TALLY_SANITIZED
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

// With a sanitizer, and if the CPU executes CUDA kernels, tests of many cases take a share of them.
// TALLY_TEST_EVERYTHING=1 in the environment (tests/full.sh) runs all.
inline bool takes_a_share(Device device = default_device()) {
  return (sanitized || device == on_cuda_host) && !asked_for("TALLY_TEST_EVERYTHING");
}

// Under ThreadSanitizer every thread of a kernel is a fiber, which takes 60 microseconds to make: the large shapes of
// all operations would take hours. There tests on cuda-host use small shapes, and skip calls of the same kernels with
// other numbers. TALLY_TEST_EVERYTHING=1 in the environment skips nothing. TALLY_TEST_SMALL=1 selects the small shapes
// on every device: compute-sanitizer slows a GPU down as much.
inline bool only_small_kernels(Device device) {
  if (asked_for("TALLY_TEST_SMALL")) return true;
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  return device.type == DeviceType::cuda_host && !asked_for("TALLY_TEST_EVERYTHING");
#endif
#endif
  return (void)device, false;
}

// Whether repeated calls of the same kernels, to compare bits, show nothing new in this build: AddressSanitizer has
// checked every address of the first call, and takes ten times as long.
inline bool repeats_show_nothing() {
#if defined(__SANITIZE_ADDRESS__)
  return !asked_for("TALLY_TEST_EVERYTHING");
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
  return !asked_for("TALLY_TEST_EVERYTHING");
#endif
#endif
  return false;
}

// None where this build or this machine has no GPU. With TALLY_REQUIRE_GPU=1 in the environment that ends the program:
// where a GPU is to be tested, tests that were left out must not look like tests that passed.
inline std::vector<Device> cuda_devices() {
  try {
    backend({DeviceType::cuda, 0});
    return {{DeviceType::cuda, 0}};
  } catch (const Error&) {
    if (asked_for("TALLY_REQUIRE_GPU")) throw;
    return {};
  }
}

// All that run the CUDA kernels.
inline std::vector<Device> kernel_devices() {
  std::vector<Device> devices = cuda_devices();
  devices.insert(devices.begin(), on_cuda_host);
  return devices;
}

// Makes the test's device the default device, on which helpers of tests make their tensors.
class OnDevice : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override { set_default_device(GetParam()); }
  void TearDown() override { set_default_device({}); }
};

}  // namespace tally::testing

// Every test of `Suite`, an OnDevice, on every device that runs the CUDA kernels.
#define TALLY_ON_KERNEL_DEVICES(Suite)                                                 \
  INSTANTIATE_TEST_SUITE_P(CudaHost, Suite, ::testing::Values(testing::on_cuda_host)); \
  INSTANTIATE_TEST_SUITE_P(Cuda, Suite, ::testing::ValuesIn(testing::cuda_devices())); \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Suite)

// The same, and on the CPU.
#define TALLY_ON_EVERY_DEVICE(Suite)                                 \
  INSTANTIATE_TEST_SUITE_P(Cpu, Suite, ::testing::Values(Device{})); \
  TALLY_ON_KERNEL_DEVICES(Suite)
