// The host execution of kernels: threads, barriers, warp operations, shared memory.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/cuda/kernel_bench.hpp"

namespace tally::cuda_host {
namespace {

std::vector<std::int32_t> integers(const Tensor& x) { return x.to_vector<std::int32_t>(); }
Tensor empty_integers(std::int64_t n) { return Tensor::empty({n}, DType::i32, device); }

// Every thread writes its number, computed from all built-in variables.
__global__ void number_kernel(std::int32_t* y) {
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned element = block * blockDim.x * blockDim.y * blockDim.z + thread;
  y[element] = static_cast<std::int32_t>(element);
}

TEST(CudaHost, EveryThreadOfEveryBlockRunsOnce) {
  for (const Settings& settings : schedules()) {
    const WithSettings with(settings);
    const Tensor y = empty_integers(3 * 5 * 2 * 4 * 3 * 2);
    launch(number_kernel, dim3(3, 5, 2), dim3(4, 3, 2), 0, stream(), y.view().as<std::int32_t>());
    std::vector<std::int32_t> expected(static_cast<std::size_t>(y.numel()));
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(integers(y), expected);
  }
}

// y = the sum of the block's numbers, by a tree in shared memory.
__global__ void sum_kernel(std::int32_t* y, const std::int32_t* x) {
  SHARED(std::int32_t, part, 256);
  const unsigned t = threadIdx.x;
  part[t] = x[blockIdx.x * blockDim.x + t];
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (t < half) part[t] += part[t + half];
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = part[0];
}

TEST(CudaHost, BarriersSeparatePhases) {
  std::vector<std::int32_t> values(40 * 256), expected(40);
  for (std::size_t n = 0; n < values.size(); ++n) {
    values[n] = static_cast<std::int32_t>(n * 7919 % 1000);
    expected[n / 256] += values[n];
  }
  const Tensor x = Tensor::from(values, {40 * 256}, device);
  for (const Settings& settings : schedules()) {
    const WithSettings with(settings);
    const Tensor y = empty_integers(40);
    launch(sum_kernel, 40, 256, 0, stream(), y.view().as<std::int32_t>(), x.view().as<std::int32_t>());
    EXPECT_EQ(integers(y), expected);
  }
}

// Two arrays of one type, and the dynamic one, are different memory.
__global__ void shared_kernel(std::int32_t* y) {
  SHARED(std::int32_t, a, 32);
  SHARED(std::int32_t, b, 32);
  SHARED_DYNAMIC(std::int32_t, c);
  const int t = static_cast<int>(threadIdx.x);
  a[t] = t;
  b[t] = 100 + t;
  c[t] = 1000 + t;
  __syncthreads();
  y[t] = a[31 - t] + b[31 - t] + c[31 - t];
}

TEST(CudaHost, SharedArraysAreApart) {
  const Tensor y = empty_integers(32);
  launch(shared_kernel, 1, 32, 32 * sizeof(std::int32_t), stream(), y.view().as<std::int32_t>());
  for (std::int32_t t = 0; t < 32; ++t) EXPECT_EQ(integers(y)[static_cast<std::size_t>(t)], 1100 + 3 * (31 - t));
}

__global__ void fresh_kernel(float* y) {
  SHARED(float, a, 32);
  SHARED_DYNAMIC(float, b);
  y[threadIdx.x] = a[threadIdx.x];
  y[32 + threadIdx.x] = b[threadIdx.x];
}

TEST(CudaHost, MemoryBeginsAsNaN) {
  const Tensor y = Tensor::empty({96}, DType::f32, device);
  launch(fresh_kernel, 1, 32, 32 * sizeof(float), stream(), y.view().as<float>());
  for (const float value : y.to_vector<float>()) EXPECT_TRUE(std::isnan(value));
}

template <class T>
__global__ void shuffle_kernel(T* y) {
  const std::uint32_t all = 0xffffffffu;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const T own = static_cast<T>(threadIdx.x);
  T* const row = y + threadIdx.x * 8;
  row[0] = __shfl_sync(all, own, 5);
  row[1] = __shfl_sync(all, own, lane + 1, 8);
  row[2] = __shfl_down_sync(all, own, 3);
  row[3] = __shfl_up_sync(all, own, 3, 16);
  row[4] = __shfl_xor_sync(all, own, 9);
  row[5] = static_cast<T>(__ballot_sync(all, lane % 3 == 0) == 0x49249249u);
  row[6] = static_cast<T>(__any_sync(all, lane == 7) && !__any_sync(all, lane > 31));
  row[7] = static_cast<T>(__all_sync(all, lane < 32) && !__all_sync(all, lane < 31));
  __syncwarp();
}

template <class T>
void expect_shuffles() {
  for (const Settings& settings : schedules()) {
    const WithSettings with(settings);
    const Tensor y = Tensor::empty({64, 8}, dtype_of<T>, device);
    launch(shuffle_kernel<T>, 1, 64, 0, stream(), y.view().as<T>());
    const std::vector<T> values = y.to_vector<T>();
    for (int t = 0; t < 64; ++t) {
      const int lane = t % 32, warp = t - lane;
      const std::vector<int> expected = {warp + 5,
                                         warp + lane / 8 * 8 + (lane + 1) % 8,
                                         lane + 3 < 32 ? t + 3 : t,
                                         lane % 16 >= 3 ? t - 3 : t,
                                         warp + (lane ^ 9),
                                         1,
                                         1,
                                         1};
      for (std::size_t n = 0; n < 8; ++n) {
        EXPECT_EQ(values[static_cast<std::size_t>(t) * 8 + n], static_cast<T>(expected[n])) << t << ", " << n;
      }
    }
  }
}

TEST(CudaHost, WarpOperations) {
  expect_shuffles<std::int32_t>();
  expect_shuffles<float>();
  expect_shuffles<double>();
}

// Halves of a warp go different ways and meet only among themselves.
__global__ void halves_kernel(std::int32_t* y) {
  const int lane = static_cast<int>(threadIdx.x);
  int value = lane;
  if (lane < 16) {
    for (int step = 8; step > 0; step /= 2) value += __shfl_xor_sync(0x0000ffffu, value, step);
  } else {
    value = __shfl_sync(0xffff0000u, value, 20);
  }
  y[lane] = value;
}

TEST(CudaHost, PartsOfAWarpMayDiverge) {
  for (const Settings& settings : schedules()) {
    const WithSettings with(settings);
    const Tensor y = empty_integers(32);
    launch(halves_kernel, 1, 32, 0, stream(), y.view().as<std::int32_t>());
    for (std::size_t t = 0; t < 32; ++t) EXPECT_EQ(integers(y)[t], t < 16 ? 120 : 20);
  }
}

__global__ void count_kernel(std::int32_t* y) { atomicAdd(y, 1); }

TEST(CudaHost, AtomicAdditionsOfAllBlocksCount) {
  const Tensor y = Tensor::zeros({1}, DType::i32, device);
  launch(count_kernel, 100, 64, 0, stream(), y.view().as<std::int32_t>());
  EXPECT_EQ(integers(y)[0], 6400);
}

__global__ void nothing_kernel() {}

TEST(CudaHost, RefusesLaunchesThatCudaRefuses) {
  EXPECT_THROW(launch(nothing_kernel, 0, 32, 0, stream()), Error);
  EXPECT_THROW(launch(nothing_kernel, 1, 1025, 0, stream()), Error);
  EXPECT_THROW(launch(nothing_kernel, 1, dim3(1, 1, 65), 0, stream()), Error);
  EXPECT_THROW(launch(nothing_kernel, dim3(1, 65536), 32, 0, stream()), Error);
  for (const int kib : {64, 99, 163, 227}) {
    const WithSettings with({.shared_kib = kib});
    const auto bytes = static_cast<std::size_t>(kib) << 10;
    EXPECT_THROW(launch(nothing_kernel, 1, 32, bytes + 1, stream()), Error);
    EXPECT_NO_THROW(launch(nothing_kernel, 1, 1024, bytes, stream()));
  }
}

}  // namespace
}  // namespace tally::cuda_host
