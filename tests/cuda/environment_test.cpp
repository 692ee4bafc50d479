// The emulator reads its environment variables once, when a program begins: each case is a program of its own.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "core/device/graph.hpp"
#include "tests/cuda/kernel_bench.hpp"

namespace tally::cuda_host {
namespace {

// Set for the time of one scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

class Environment : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

[[noreturn]] void print_settings() {
  try {
    const Settings s = settings();
    const char* const names[] = {"forward", "reverse", "random"};
    std::cerr << names[static_cast<int>(s.schedule)] << " seed=" << s.seed << " delay=" << s.delay_streams
              << " protect=" << s.protect_memory << " shared=" << s.shared_kib << std::endl;
    std::_Exit(0);
  } catch (const Error& error) {
    std::cerr << error.what() << std::endl;
    std::_Exit(1);
  }
}

TEST_F(Environment, SaysNothingAtFirst) {
  EXPECT_EXIT(print_settings(), ::testing::ExitedWithCode(0), "^forward seed=0 delay=0 protect=0 shared=227\n");
}

TEST_F(Environment, NamesTheSchedule) {
  for (const auto& [value, settings] : {std::pair{"forward", "^forward seed=0 "},
                                        {"reverse", "^reverse seed=0 "},
                                        {"random", "^random seed=0 "},
                                        {"random:7", "^random seed=7 "}}) {
    const Variable set("TALLY_CUDA_SCHEDULE", value);
    EXPECT_EXIT(print_settings(), ::testing::ExitedWithCode(0), settings) << value;
  }
  for (const char* value : {"backwards", "random7", "random:", "random:x", "random:7x"}) {
    const Variable set("TALLY_CUDA_SCHEDULE", value);
    EXPECT_EXIT(print_settings(), ::testing::ExitedWithCode(1),
                formatted("TALLY_CUDA_SCHEDULE={} is none of forward, reverse, random and random:<seed>", value));
  }
}

TEST_F(Environment, DelaysAndProtects) {
  {
    const Variable set("TALLY_CUDA_DELAY", "1");
    EXPECT_EXIT(print_settings(), ::testing::ExitedWithCode(0), " delay=1 protect=0 ");
  }
  const Variable set("TALLY_CUDA_PROTECT", "1");
  EXPECT_EXIT(print_settings(), ::testing::ExitedWithCode(0), " delay=0 protect=1 ");
}

TEST_F(Environment, NamesTheSharedMemory) {
  {
    const Variable set("TALLY_CUDA_SHARED", "99");
    EXPECT_EXIT(print_settings(), ::testing::ExitedWithCode(0), " shared=99\n");
  }
  const Variable set("TALLY_CUDA_SHARED", "100");
  EXPECT_EXIT(print_settings(), ::testing::ExitedWithCode(1), "TALLY_CUDA_SHARED=100 is none of 64, 99, 163 and 227");
}

__global__ void half_barrier_kernel() {
  if (threadIdx.x < 16) __syncthreads();
}

// Counts the launches, of 40 with a mistake in late streams, at which the mistake is reported immediately.
[[noreturn]] void count_mistakes() {
  int told = 0;
  for (int n = 0; n < 40; ++n) {
    if (!mistake_in([] { launch(half_barrier_kernel, 1, 32, 0, stream()); }).empty()) ++told;
  }
  std::cerr << told << " at once, graphs " << DeviceGraph::available(device) << std::endl;
  std::_Exit(0);
}

TEST_F(Environment, WaitsAfterEachLaunch) {
  const Variable late("TALLY_CUDA_DELAY", "1");
  EXPECT_EXIT(count_mistakes(), ::testing::ExitedWithCode(0), "^[123]?[0-9] at once, graphs 1\n");
  const Variable waits("TALLY_CUDA_SYNC", "1");
  EXPECT_EXIT(count_mistakes(), ::testing::ExitedWithCode(0), "^40 at once, graphs 0\n");
}

}  // namespace
}  // namespace tally::cuda_host
