// Compiled for every architecture that nvcc knows (cuda/CMakeLists.txt), not run. Each must know the instructions of
// cuda/runtime/instructions.hpp or take the plain code. Attention's kernels are made of them.
#include "cuda/attention/backward_keys.hpp"
#include "cuda/attention/backward_rows.hpp"
#include "cuda/attention/forward.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

template <MatmulPrecision precision>
__global__ void product(float* y, const float* a, const float* b) {
  constexpr int ld = 36, depth = 32;
  float result[2][8] = {};
  multiply_tile<precision>(result, ByRow<float>{a, ld}, ByColumn<float>{b, ld}, depth);
  for (int c = 0; c < 8; ++c) y[tile_row(0) * ld + tile_column(c)] = result[0][c] + result[1][c];
}

template __global__ void product<MatmulPrecision::f32>(float*, const float*, const float*);
template __global__ void product<MatmulPrecision::tf32>(float*, const float*, const float*);
template __global__ void product<MatmulPrecision::bf16>(float*, const float*, const float*);

namespace attention_kernels {

// One form of each: heads of 64 without a score modification.
template __global__ void attention_forward<float, MatmulPrecision::f32, 64, Family::plain, NoScoreMod>(
    const __grid_constant__ DeviceCall<float>);
template __global__ void attention_forward_bf16<64, Family::plain, NoScoreMod>(
    const __grid_constant__ DeviceCall<float>);
template __global__ void attention_backward_rows<float, MatmulPrecision::tf32, 64, Family::plain, NoScoreMod>(
    const __grid_constant__ DeviceCall<float>);
template __global__ void attention_backward_keys<float, MatmulPrecision::tf32, 64, Family::plain, NoScoreMod>(
    const __grid_constant__ DeviceCall<float>);
template __global__ void attention_backward_rows_bf16<64, Family::plain, NoScoreMod>(
    const __grid_constant__ DeviceCall<float>);
template __global__ void attention_backward_keys_bf16<64, Family::plain, NoScoreMod>(
    const __grid_constant__ DeviceCall<float>);

}  // namespace attention_kernels
}  // namespace tally::TALLY_CUDA_NAMESPACE
