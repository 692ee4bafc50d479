// Chapter 11: a GPU without a GPU. A CUDA kernel that adds up numbers, executed on the CPU, and two mistakes in it.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/tensor.hpp"
#include "cuda/emulator/settings.hpp"
#include "cuda/runtime/context.hpp"
#include "cuda/runtime/launch.hpp"

using tally::Tensor;
using namespace tally::cuda_host;

constexpr int threads = 64;

// Each block adds up 64 elements of x and writes one sum.
__global__ void sum_kernel(float* sums, const float* x) {
  SHARED(float, part, threads);
  const unsigned own = threadIdx.x;
  part[own] = x[blockIdx.x * threads + own];
  for (unsigned half = threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (own < half) part[own] += part[own + half];
  }
  if (own == 0) sums[blockIdx.x] = part[0];
}

// Without the barrier.
__global__ void racing_kernel(float* sums, const float* x) {
  SHARED(float, part, threads);
  const unsigned own = threadIdx.x;
  part[own] = x[blockIdx.x * threads + own];
  for (unsigned half = threads / 2; half > 0; half /= 2)
    if (own < half) part[own] += part[own + half];
  if (own == 0) sums[blockIdx.x] = part[0];
}

// With a barrier that half of the threads never reach.
__global__ void leaving_kernel(float* sums, const float* x) {
  SHARED(float, part, threads);
  const unsigned own = threadIdx.x;
  part[own] = x[blockIdx.x * threads + own];
  if (own >= threads / 2) return;
  __syncthreads();
  part[own] += part[own + threads / 2];
  if (own == 0) sums[blockIdx.x] = part[0];
}

// Runs a kernel in three blocks of 64 threads, whose order is a choice, and prints the three sums.
void run(const char* name, void (*kernel)(float*, const float*), Schedule schedule) {
  set_settings({.schedule = schedule});
  const tally::Device device{tally::DeviceType::cuda_host, 0};
  std::vector<float> numbers;
  for (int n = 0; n < 3 * threads; ++n) numbers.push_back(static_cast<float>(n));
  const Tensor x = Tensor::from(numbers, {3 * threads}, device), sums = Tensor::zeros({3}, tally::DType::f32, device);
  launch(kernel, 3, threads, 0, use_device(0).stream, sums.view().as<float>(), x.view().as<float>());
  std::printf("%-20s", name);
  for (const float sum : sums.to_vector<float>())
    std::isnan(sum) ? std::printf(" nan") : std::printf(" %.0f", static_cast<double>(sum));
  std::printf("\n");
}

int main() {
  run("sum, first to last", sum_kernel, Schedule::forward);
  run("sum, last to first", sum_kernel, Schedule::reverse);
  run("race, last to first", racing_kernel, Schedule::reverse);
  run("race, first to last", racing_kernel, Schedule::forward);
  try {
    run("leaving", leaving_kernel, Schedule::forward);
  } catch (const tally::InternalError& error) {
    std::string text = error.what();
    text = text.substr(0, text.find(" (this is"));
    const std::string file = __FILE__, folder = file.substr(0, file.rfind('/') + 1);
    for (std::size_t at = text.find(folder); at != std::string::npos; at = text.find(folder))
      text.replace(at, folder.size(), "");
    for (std::size_t at = text.find(": "); at != std::string::npos; at = text.find(": ", at))
      text.replace(at, 2, ":\n");
    std::printf("%s\n", text.c_str());
  }
  return 0;
}
