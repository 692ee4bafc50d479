#include "cuda/runtime/launch.hpp"

using namespace tally::cuda_host;

__global__ void largest_kernel(float* largest, const float* x, int n) {
  SHARED(float, part, 64);
  const int own = static_cast<int>(threadIdx.x);
  part[own] = x[0];
  for (int i = own; i < n; i += 64) part[own] = x[i] > part[own] ? x[i] : part[own];
  for (int half = 32; half > 0; half /= 2) {
    __syncthreads();
    if (own < half && part[own + half] > part[own]) part[own] = part[own + half];
  }
  if (own == 0) largest[0] = part[0];
}
