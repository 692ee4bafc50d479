// The loaded OpenBLAS, and the sharing out of tiles.
#include "core/cpu/matmul/blas.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "core/cpu/parallel.hpp"
#include "tests/error_of.hpp"

namespace tally::blas_test {

// ---------------------------------------------------------------------------------------------------------------------
// Tiles

class Threads : public ::testing::Test {
 protected:
  ~Threads() override { set_thread_count(before_); }

 private:
  int before_ = thread_count();
};

TEST_F(Threads, EveryTileIsComputedOnce) {
  for (const int threads : {1, 2, 3}) {
    set_thread_count(threads);
    EXPECT_EQ(thread_count(), threads);
    for (const std::int64_t tiles : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<std::size_t>(tiles));
      parallel_for(tiles, [&](std::int64_t tile) { ++calls[static_cast<std::size_t>(tile)]; });
      for (const auto& count : calls) EXPECT_EQ(count, 1);
    }
  }
}

TEST_F(Threads, BlocksCoverTheRangeAndOnlyTheLastIsShort) {
  set_thread_count(2);
  std::vector<std::atomic<int>> calls(103);
  std::atomic<int> short_blocks{0};
  parallel_for_blocks(103, 10, [&](std::int64_t begin, std::int64_t end) {
    EXPECT_EQ(begin % 10, 0);
    if (end - begin != 10) ++short_blocks;
    for (std::int64_t i = begin; i < end; ++i) ++calls[static_cast<std::size_t>(i)];
  });
  for (const auto& count : calls) EXPECT_EQ(count, 1);
  EXPECT_EQ(short_blocks, 1);
}

TEST_F(Threads, TheNumberHoldsForEveryThreadOfTheProgram) {
  set_thread_count(3);
  int seen = 0;
  std::thread([&] { seen = thread_count(); }).join();
  EXPECT_EQ(seen, 3);
}

TEST_F(Threads, ANumberBelowOneIsRefused) { EXPECT_THROW(set_thread_count(0), Error); }

// ---------------------------------------------------------------------------------------------------------------------
// The library

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "(none)";
}

TEST(Blas, SaysWhatItLoadedAndLeavesTheEnvironmentAlone) {
  const std::string core_type = variable("OPENBLAS_CORETYPE"), threads = variable("OPENBLAS_NUM_THREADS");
  const BlasInfo info = blas_info();
  EXPECT_TRUE(std::filesystem::exists(info.path)) << info.path;
  EXPECT_NE(info.config.find("OpenBLAS"), std::string::npos) << info.config;
  EXPECT_FALSE(info.core.empty());
  EXPECT_EQ(variable("OPENBLAS_CORETYPE"), core_type);
  EXPECT_EQ(variable("OPENBLAS_NUM_THREADS"), threads);
}

// Integers, so that every order of addition gives the same sum; n large enough that BLAS works in its shared buffers.
// All threads start each product together, as tiles do: that is when they ask the library for its buffers.
TEST(Blas, TwoThreadsAtOnce) {
  constexpr int repetitions = 3000;
  constexpr int n = 160, threads = 2;
  std::atomic<int> wrong{0}, started{0};
  const auto work = [&](float value) {
    const std::vector<float> a(n * n, value), b(n * n, 1.0F);
    std::vector<float> c(n * n);
    for (int repetition = 1; repetition <= repetitions; ++repetition) {
      ++started;
      while (started < threads * repetition) std::this_thread::yield();
      cpu::gemm_tile(false, false, n, n, n, 1.0F, a.data(), n, b.data(), n, 0.0F, c.data(), n);
      wrong += std::any_of(c.begin(), c.end(), [&](float element) { return element != value * n; });
    }
  };
  std::thread other([&] { work(2.0F); });
  work(1.0F);
  other.join();
  EXPECT_EQ(wrong, 0);
}

// These tests choose a library, which is loaded once, so each runs in a fresh process.
class BlasChoice : public ::testing::Test {
 protected:
  BlasChoice() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(BlasChoice, ALibraryThatDoesNotFitIsNamed) {
  const auto load = [](const char* library) {
    setenv("TALLY_BLAS", library, 1);
    std::fputs(testing::error_of([] { cpu::load_blas(); }).c_str(), stderr);
    std::exit(3);
  };
  const ::testing::ExitedWithCode exits(3);
  EXPECT_EXIT(load("/nowhere/libopenblas.so.0"), exits, "libopenblas0-pthread(.|\n)*/nowhere/libopenblas.so.0");
  EXPECT_EXIT(load("libm.so.6"), exits, "libm.so.6: not an OpenBLAS");
}

TEST_F(BlasChoice, TheUsersKernelsWin) {
#ifndef __x86_64__
  GTEST_SKIP() << "kernels of x86-64";
#endif
  const auto load = [] {
    setenv("OPENBLAS_CORETYPE", "Nehalem", 1);
    std::fputs(blas_info().core.c_str(), stderr);
    std::exit(std::strcmp(std::getenv("OPENBLAS_CORETYPE"), "Nehalem"));
  };
  EXPECT_EXIT(load(), ::testing::ExitedWithCode(0), "Nehalem");
}

TEST_F(BlasChoice, WithoutAWordFromTheUserTheKernelsAreTheFastest) {
#ifdef __x86_64__
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "a processor without AVX2";
  const auto load = [] {
    unsetenv("OPENBLAS_CORETYPE");
    std::fputs(blas_info().core.c_str(), stderr);
    std::exit(std::getenv("OPENBLAS_CORETYPE") == nullptr ? 0 : 1);
  };
  EXPECT_EXIT(load(), ::testing::ExitedWithCode(0), "^(SkylakeX|Haswell)$");
#else
  GTEST_SKIP() << "kernels of x86-64";
#endif
}

}  // namespace tally::blas_test
