// Mistakes planted in kernels. Each is found, and named with its line.
//
// A mistake that stops a launch (barriers, warp operations, shared memory) is found in every build. A missing barrier
// shows in every build by bits that depend on the schedule. ThreadSanitizer names its lines and the lines of races
// between blocks, AddressSanitizer the lines of overruns.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "core/cpu/parallel.hpp"
#include "cuda/emulator/sanitizer.hpp"
#include "tests/cuda/kernel_bench.hpp"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TALLY_TEST_RACES 1
// The first report ends the program, as EXPECT_DEATH wants it.
extern "C" const char* __tsan_default_options() { return "halt_on_error=1"; }
#endif
#endif

namespace tally::cuda_host {
namespace {

std::string here(int line) { return formatted("planted_test.cpp:{}", line); }

void expect_mistake(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " not in: " << text;
}

class Planted : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    y_ = Tensor::zeros({1024}, DType::f32, device);
  }
  float* y() const { return y_.view().as<float>(); }
  Tensor y_;
};

// ---------------------------------------------------------------------------------------------------------------------
// Barriers

constexpr int half_line = __LINE__ + 3;
__global__ void half_barrier_kernel(float* y) {
  if (threadIdx.x >= 16) return;
  __syncthreads();
  y[threadIdx.x] = 1;
}

TEST_F(Planted, BarrierThatSomeHaveLeftBefore) {
  for (const Settings& settings : schedules()) {
    const WithSettings with(settings);
    expect_mistake(mistake_in([&] { launch(half_barrier_kernel, dim3(1, 3), 32, 0, stream(), y()); }),
                   {"planted_test.cpp", "block (0, ", "thread (", ", 0, 0) has left the kernel", here(half_line)});
  }
}

constexpr int if_line = __LINE__ + 4;
constexpr int else_line = __LINE__ + 5;
__global__ void two_barriers_kernel(float* y) {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  y[threadIdx.x] = 1;
}

TEST_F(Planted, BarriersAtTwoPlaces) {
  for (const Settings& settings : schedules()) {
    const WithSettings with(settings);
    expect_mistake(mistake_in([&] { launch(two_barriers_kernel, 1, 64, 0, stream(), y()); }),
                   {"__syncthreads at different lines", here(if_line), here(else_line), "thread ("});
  }
}

constexpr int block_line = __LINE__ + 4;
constexpr int warp_line = __LINE__ + 5;
__global__ void deadlock_kernel(float* y) {
  if (threadIdx.x == 7) {
    __syncthreads();
  } else {
    __syncwarp();
  }
  y[threadIdx.x] = 1;
}

TEST_F(Planted, DeadlockTellsWhoWaitsWhere) {
  for (const Settings& settings : schedules()) {
    const WithSettings with(settings);
    expect_mistake(mistake_in([&] { launch(deadlock_kernel, 1, 32, 0, stream(), y()); }),
                   {"every thread waits for others", "thread (7, 0, 0): __syncthreads", here(block_line),
                    "thread (0, 0, 0) and 30 more: __syncwarp", here(warp_line)});
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Warp operations

constexpr int narrow_line = __LINE__ + 3;
__global__ void narrow_mask_kernel(float* y) {
  const float value = y[threadIdx.x];
  y[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, value, 1);
}

TEST_F(Planted, MaskWithoutItsOwnLane) {
  expect_mistake(
      mistake_in([&] { launch(narrow_mask_kernel, 1, 32, 0, stream(), y()); }),
      {"thread (16, 0, 0) calls __shfl_xor_sync with mask 0x0000ffff", here(narrow_line), "its own lane 16"});
}

constexpr int wide_line = __LINE__ + 3;
__global__ void wide_mask_kernel(float* y) {
  if (threadIdx.x < 16) {
    y[threadIdx.x] = __shfl_down_sync(0xffffffffu, y[threadIdx.x], 8);
  }
}

TEST_F(Planted, MaskWithLanesThatNeverCome) {
  for (const Settings& settings : schedules()) {
    const WithSettings with(settings);
    expect_mistake(mistake_in([&] { launch(wide_mask_kernel, 1, 32, 0, stream(), y()); }),
                   {"__shfl_down_sync with mask 0xffffffff", here(wide_line), "has left the kernel"});
  }
}

constexpr int missing_line = __LINE__ + 1;
__global__ void missing_lanes_kernel(float* y) { y[threadIdx.x] = __shfl_sync(0xffffffffu, y[threadIdx.x], 0); }

TEST_F(Planted, MaskWithLanesThatTheBlockDoesNotHave) {
  expect_mistake(mistake_in([&] { launch(missing_lanes_kernel, 1, 48, 0, stream(), y()); }),
                 {"__shfl_sync with mask 0xffffffff", "the block has no lane 16 there", here(missing_line)});
}

constexpr int unequal_line = __LINE__ + 3;
__global__ void unequal_masks_kernel(float* y) {
  const unsigned mask = threadIdx.x < 16 ? 0xffffffffu : 0xffff0000u;
  y[threadIdx.x] = __ballot_sync(mask, true) != 0 ? 1.0f : 0.0f;
}

TEST_F(Planted, MasksThatDiffer) {
  for (const Settings& settings : schedules()) {
    const WithSettings with(settings);
    expect_mistake(mistake_in([&] { launch(unequal_masks_kernel, 1, 32, 0, stream(), y()); }),
                   {"__ballot_sync with mask 0xffffffff", here(unequal_line)});
  }
}

constexpr int outside_line = __LINE__ + 3;
__global__ void outside_mask_kernel(float* y) {
  if (threadIdx.x >= 16) return;
  y[threadIdx.x] = __shfl_down_sync(0x0000ffffu, y[threadIdx.x], 8);
}

TEST_F(Planted, ShuffleFromALaneOutsideItsMask) {
  expect_mistake(mistake_in([&] { launch(outside_mask_kernel, 1, 32, 0, stream(), y()); }),
                 {"reads lane 16, which is not in the mask", here(outside_line)});
}

constexpr int first_line = __LINE__ + 4;
constexpr int second_line = __LINE__ + 5;
__global__ void mixed_operations_kernel(float* y) {
  if (threadIdx.x < 16) {
    y[threadIdx.x] = __shfl_sync(0xffffffffu, 1.0f, 0);
  } else {
    y[threadIdx.x] = __shfl_sync(0xffffffffu, 2.0f, 0);
  }
}

TEST_F(Planted, LanesInDifferentOperations) {
  expect_mistake(mistake_in([&] { launch(mixed_operations_kernel, 1, 32, 0, stream(), y()); }),
                 {"different operations", here(first_line), here(second_line)});
}

// ---------------------------------------------------------------------------------------------------------------------
// Memory

constexpr int large_line = __LINE__ + 2;
__global__ void large_kernel(float* y) {
  SHARED(float, tile, 13000);
  tile[threadIdx.x] = 1;
  y[threadIdx.x] = tile[threadIdx.x];
}

TEST_F(Planted, TooMuchSharedMemory) {
  expect_mistake(mistake_in([&] { launch(large_kernel, 1, 32, 0, stream(), y()); }),
                 {"52000 bytes of shared memory", here(large_line)});
}

constexpr int both_line = __LINE__ + 2;
__global__ void both_kinds_kernel(float* y) {
  SHARED(float, tile, 1000);
  SHARED_DYNAMIC(float, rows);
  tile[threadIdx.x] = rows[threadIdx.x] = 1;
  y[threadIdx.x] = tile[threadIdx.x];
}

TEST_F(Planted, TooMuchSharedMemoryOfBothKinds) {
  const WithSettings with({.shared_kib = 163});
  expect_mistake(mistake_in([&] { launch(both_kinds_kernel, 1, 32, std::size_t{160} << 10, stream(), y()); }),
                 {"4000 bytes of shared memory in arrays beside 163840 of the launch", here(both_line)});
}

constexpr int misaligned_line = __LINE__ + 2;
__global__ void misaligned_kernel(float* y) {
  const float2 two = *vector_at<const float2>(y + 1);
  y[0] = two.x + two.y;
}

TEST_F(Planted, VectorOffItsBoundary) {
  expect_mistake(
      mistake_in([&] { launch(misaligned_kernel, 1, 1, 0, stream(), y()); }),
      {"thread (0, 0, 0) reads or writes 8 bytes at once that do not begin at a multiple of 8", here(misaligned_line)});
}

// Every thread reads its neighbour's output without waiting for it.
constexpr int write_line = __LINE__ + 4;
constexpr int read_line = __LINE__ + 4;
__global__ void missing_barrier_kernel(float* y) {
  SHARED(float, row, 64);
  row[threadIdx.x] = static_cast<float>(threadIdx.x);
  y[threadIdx.x] = row[63 - threadIdx.x];
}

constexpr int block_race_line = __LINE__ + 3;
__global__ void block_race_kernel(float* y) {
  const auto value = static_cast<float>(blockIdx.x);
  y[threadIdx.x] = value;
}

#if TALLY_TEST_RACES

TEST_F(Planted, MissingBarrierIsARace) {
  // The later of the two is reported first.
  const std::string write = here(write_line), read = here(read_line);
  EXPECT_DEATH(launch(missing_barrier_kernel, 1, 64, 0, stream(), y()),
               formatted("data race.*({}.*revious write.*{}|{}.*revious read.*{})", read, write, write, read));
}

TEST_F(Planted, RaceBetweenBlocks) {
  EXPECT_DEATH(launch(block_race_kernel, 4, 32, 0, stream(), y()),
               formatted("data race.*{}.*revious write.*{}", here(block_race_line), here(block_race_line)));
}

#else

TEST_F(Planted, MissingBarrierGivesOtherBitsUnderAnotherSchedule) {
  std::vector<std::vector<bool>> results;  // which elements were read too early
  for (const Settings& settings : schedules()) {
    const WithSettings with(settings);
    launch(missing_barrier_kernel, 1, 64, 0, stream(), y());
    results.emplace_back();
    for (const float value : y_.to_vector<float>()) results.back().push_back(std::isnan(value));
  }
  int different = 0;
  for (const auto& result : results) different += result != results[0] ? 1 : 0;
  EXPECT_EQ(different, 3) << "lines " << write_line << ", " << read_line;
}

TEST_F(Planted, RaceBetweenBlocksGivesOtherBitsUnderAnotherSchedule) {
  std::vector<std::vector<float>> results;
  // With several threads a busy machine may delay any of them, so any could be the last to write.
  const int threads = thread_count();
  set_thread_count(1);
  for (const Schedule schedule : {Schedule::forward, Schedule::reverse}) {
    const WithSettings with({.schedule = schedule});
    launch(block_race_kernel, 4, 256, 0, stream(), y());
    results.push_back(y_.to_vector<float>());
  }
  set_thread_count(threads);
  EXPECT_NE(results[0], results[1]) << "line " << block_race_line;
}

#endif

#if TALLY_ADDRESS_SANITIZER

constexpr int overrun_line = __LINE__ + 4;
__global__ void overrun_kernel(float* y) {
  SHARED(float, row, 32);
  float* const address = row + threadIdx.x;
  address[1] = y[threadIdx.x];
}

constexpr int dynamic_overrun_line = __LINE__ + 3;
__global__ void dynamic_overrun_kernel(float* y) {
  SHARED_DYNAMIC(float, row);
  row[threadIdx.x] = y[threadIdx.x];
}

constexpr int global_overrun_line = __LINE__ + 3;
__global__ void global_overrun_kernel(float* y) {
  float* const address = y + 1024 + threadIdx.x;
  *address = 1;
}

TEST_F(Planted, OverrunOfSharedMemory) {
  EXPECT_DEATH(launch(overrun_kernel, 1, 32, 0, stream(), y()), formatted("overflow.*{}", here(overrun_line)));
  EXPECT_DEATH(launch(dynamic_overrun_kernel, 1, 32, 31 * sizeof(float), stream(), y()),
               formatted("overflow.*{}", here(dynamic_overrun_line)));
}

TEST_F(Planted, OverrunOfDeviceMemory) {
  EXPECT_DEATH(launch(global_overrun_kernel, 1, 32, 0, stream(), y()),
               formatted("overflow.*{}", here(global_overrun_line)));
}

#endif

#if !TALLY_ADDRESS_SANITIZER && !TALLY_TEST_RACES  // which report it themselves

// Frames of 2 KiB, one below the other.
[[gnu::noinline]] float sum_of_frames(const float* above, int depth) {
  std::array<float, 512> frame{};
  frame[static_cast<std::size_t>(depth) % frame.size()] = *above + 1;
  return depth == 0 ? frame[0] : sum_of_frames(frame.data() + depth % 512, depth - 1) + frame[511];
}

__global__ void deep_kernel(float* y, int depth) {
  __syncthreads();
  if (blockIdx.x == 1 && threadIdx.x == 5) y[0] = sum_of_frames(y, depth);
}

TEST_F(Planted, StackThatIsTooSmall) {
  launch(deep_kernel, 2, 32, 0, stream(), y(), 30);
  EXPECT_EQ(y_.to_vector<float>()[0], 31);
  const int line = __LINE__ + 1;  // compilers disagree about the lines of a macro
  const auto overflow = [&] { launch(deep_kernel, 2, 32, 0, stream(), y(), 400); };
  EXPECT_DEATH(overflow(),
               formatted("kernel launched at .*{}, block .1, 0, 0., thread .5, 0, 0.: more than the ", here(line)));
}

#endif

constexpr int host_line = __LINE__ + 3;
[[gnu::noinline]] float read_on_host(const Tensor& x) {
  const float* const elements = x.view().as<float>();
  return elements[0];
}

TEST_F(Planted, HostCodeInDeviceMemory) {
  const WithSettings with({.protect_memory = true});
  const Tensor x = Tensor::full({1000}, 3, DType::f32, device);
  EXPECT_EQ(x.to_vector<float>()[999], 3);  // copies may
#if TALLY_ADDRESS_SANITIZER || TALLY_TEST_RACES
  EXPECT_DEATH(std::cerr << read_on_host(x), here(host_line));
#else
  EXPECT_DEATH(std::cerr << read_on_host(x),
               formatted("host code touches device memory.*read_on_host.*{}", here(host_line)));
#endif
}

}  // namespace
}  // namespace tally::cuda_host
