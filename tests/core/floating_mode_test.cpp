// The floating-point mode of kernels: set in every thread that computes, and restored in all of them afterwards.
#include "core/cpu/floating_mode.hpp"

#include <gtest/gtest.h>
#include <omp.h>

#include <bit>
#include <cfenv>

#include "core/cpu/parallel.hpp"
#include "core/device/backend.hpp"
#include "tests/core/kernel_array.hpp"

namespace tally::floating_mode_test {

class FloatingMode : public ::testing::Test {
 protected:
  void SetUp() override {
    cpu::set_floating_mode(cpu::kernel_mode);
    const bool known = cpu::floating_mode() == cpu::kernel_mode;
    cpu::set_floating_mode(mode_);
#if defined(__x86_64__) || defined(__aarch64__)
    ASSERT_TRUE(known) << "the mode that was set is not the one that is read";
#else
    if (!known) GTEST_SKIP() << "nothing is known of this processor's mode";
#endif
  }
  ~FloatingMode() override {
    set_thread_count(threads_);
    cpu::set_floating_mode(mode_);
  }
  std::uint64_t mode_ = cpu::floating_mode();

 private:
  int threads_ = thread_count();
};

// The modes of the threads of an OpenMP region outside the library.
std::vector<std::uint64_t> modes_of_threads(int threads) {
  std::vector<std::uint64_t> modes(static_cast<std::size_t>(threads));
#pragma omp parallel num_threads(threads)
  modes[static_cast<std::size_t>(omp_get_thread_num())] = cpu::floating_mode();
  return modes;
}

TEST_F(FloatingMode, IsThatOfKernelsInEveryThreadAndTheCallersAfterwards) {
  constexpr int threads = 3;
  const std::vector<std::uint64_t> before = modes_of_threads(threads);
  for (const int rounding : {FE_TONEAREST, FE_UPWARD}) {
    std::fesetround(rounding);
    std::feraiseexcept(FE_INEXACT);
    const std::uint64_t own = cpu::floating_mode();
    for (const int count : {1, threads}) {
      set_thread_count(count);
      std::vector<std::uint64_t> inside(200);
      parallel_for(200, [&](std::int64_t tile) { inside[static_cast<std::size_t>(tile)] = cpu::floating_mode(); });
      EXPECT_EQ(inside, std::vector<std::uint64_t>(200, cpu::kernel_mode)) << count;
      EXPECT_EQ(cpu::floating_mode(), own) << count;
    }
  }
  std::fesetround(FE_TONEAREST);
  const std::vector<std::uint64_t> after = modes_of_threads(threads);
  for (std::size_t thread = 1; thread < after.size(); ++thread) EXPECT_EQ(after[thread], before[thread]) << thread;
}

// clip_scale, of a few numbers, is no work for several threads.
TEST_F(FloatingMode, HoldsForWhatAKernelComputesByItself) {
  Array<float> scale({1}), loss({1});
  Array<double> squares({1});
  loss.at(0) = 0.0F;
  for (const double clip : {1e-39, 1e-40}) {
    for (const bool callers_own : {false, true}) {
      cpu::set_floating_mode(callers_own ? cpu::kernel_mode : mode_);
      squares.at(0) = 1.0;
      kernels(Device{}).clip_scale(scale.view, squares.view, loss.view, clip);
      cpu::set_floating_mode(mode_);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(scale.at(0)), 0U) << clip << (callers_own ? " in the mode" : "");
    }
  }
}

// With any number of threads, and in any mode of the caller, the bits are the same.
TEST_F(FloatingMode, OfTheCallerIsOfNoConsequence) {
  const Shape shape{64, 2048};
  std::vector<std::vector<float>> seen;
  for (const int count : {1, 2, 3}) {
    set_thread_count(count);
    for (const int rounding : {FE_TONEAREST, FE_DOWNWARD}) {
      Array<float> x(shape), y(shape, 2);
      for (std::int64_t i = 0; i < shape.numel(); ++i) y.at(i) *= 1e-37F;
      std::fesetround(rounding);
      kernels(Device{}).binary(BinaryOp::multiply, y.view, x.view, y.view);
      std::fesetround(FE_TONEAREST);
      seen.push_back(y.values());
      EXPECT_EQ(seen.back(), seen.front()) << count << " " << rounding;
    }
  }
}

}  // namespace tally::floating_mode_test
