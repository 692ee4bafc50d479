// Sums along the rows of a tile of pairs, by shuffles between the four lanes of a row or on tensor cores.
#pragma once

#include "cuda/attention/device.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

inline constexpr int columns = tile / row_lanes;  // number of pairs of each row that a thread has
inline constexpr int pair_ld = tile + 4;          // step between rows of a tile of pairs in shared memory, [rows][keys]

// A running sum with compensation for rounding.
template <class T>
struct RunningSum {
  T sum = 0, lost = 0;
  __device__ void add(T value) {
    const T next = sum + value;
    lost += (sum - next) + value;
    sum = next;
  }
  __device__ T value() const { return sum + lost; }
  // Adds the compensation to the sum, because only the sum is saved between tiles.
  __device__ T settle() {
    sum += lost;
    lost = 0;
    return sum;
  }
};

// Replaces each pair by the sum of `sums`, itself and the pairs to its right in the row. Adds the whole row to `sums`.
template <class T>
__device__ void sum_leftward(T (&x)[2][columns], RunningSum<T> (&sums)[2]) {
  const int lane = lane_of_warp() % row_lanes;
  TALLY_UNROLL
  for (int r = 0; r < 2; ++r) {
    TALLY_UNROLL
    for (int c = columns - 2; c >= 0; c -= 2) {
      // Sums over the column pairs of the lanes from this one on, then excluding this one.
      T from = x[r][c] + x[r][c + 1];
      const T next = __shfl_down_sync(whole_warp, from, 1, row_lanes);
      from += lane + 1 < row_lanes ? next : T{0};
      const T third = __shfl_down_sync(whole_warp, from, 2, row_lanes);
      from += lane + 2 < row_lanes ? third : T{0};
      const T shifted = __shfl_down_sync(whole_warp, from, 1, row_lanes), before = sums[r].value();
      x[r][c + 1] = before + ((lane + 1 < row_lanes ? shifted : T{0}) + x[r][c + 1]);
      x[r][c] = before + from;
      sums[r].add(__shfl_sync(whole_warp, from, 0, row_lanes));
    }
  }
}
// The same by products. The pairs of 16 keys are the left operand, as bf16 and the rest after rounding, so a sum has a
// relative error of 2^-17. The right operand is a triangle: column n has ones from row n on.
__device__ inline void sum_leftward_on_tensor_cores(float (&x)[2][columns], RunningSum<float> (&sums)[2]) {
  constexpr std::uint32_t low_one = 0x3f80, high_one = low_one << 16, ones = low_one | high_one;
  const int column = lane_of_warp() / row_lanes, row = 2 * (lane_of_warp() % row_lanes);
  const std::uint32_t triangle = (row >= column ? low_one : 0) | (row + 1 >= column ? high_one : 0);
  TALLY_UNROLL
  for (int c = columns - 4; c >= 0; c -= 4) {
    std::uint32_t rounded[4], rest[4];
    TALLY_UNROLL
    for (int n = 0; n < 4; ++n) {
      const float low = x[n % 2][c + n / 2 * 2], high = x[n % 2][c + n / 2 * 2 + 1];
      rounded[n] = detail::as_bf16_pair(low, high);
      rest[n] = detail::as_bf16_pair(low - std::bit_cast<float>(rounded[n] << 16),
                                     high - std::bit_cast<float>(rounded[n] & 0xffff0000U));
    }
    const float upper = sums[0].value(), lower = sums[1].value();
    float left[4] = {upper, upper, lower, lower}, right[4] = {upper, upper, lower, lower}, all[4] = {};
    const auto add = [&](const std::uint32_t(&gates)[4]) {
      detail::mma_bf16(left, gates, {triangle, ones});
      detail::mma_bf16(right, gates, {0, triangle});
      detail::mma_bf16(all, gates, {ones, ones});
    };
    add(rounded);
    add(rest);
    TALLY_UNROLL
    for (int n = 0; n < 4; ++n) x[n / 2][c + n % 2] = left[n], x[n / 2][c + 2 + n % 2] = right[n];
    sums[0].add(all[0]);
    sums[1].add(all[2]);
  }
}

// The same from the left.
template <class T>
__device__ void sum_rightward(T (&x)[2][columns], T (&sums)[2]) {
  const int lane = lane_of_warp() % row_lanes;
  TALLY_UNROLL
  for (int r = 0; r < 2; ++r) {
    TALLY_UNROLL
    for (int c = 0; c < columns; c += 2) {
      T upto = x[r][c] + x[r][c + 1];
      const T next = __shfl_up_sync(whole_warp, upto, 1, row_lanes);
      upto += lane >= 1 ? next : T{0};
      const T third = __shfl_up_sync(whole_warp, upto, 2, row_lanes);
      upto += lane >= 2 ? third : T{0};
      const T shifted = __shfl_up_sync(whole_warp, upto, 1, row_lanes);
      x[r][c] = sums[r] + ((lane >= 1 ? shifted : T{0}) + x[r][c]);
      x[r][c + 1] = sums[r] + upto;
      sums[r] += __shfl_sync(whole_warp, upto, row_lanes - 1, row_lanes);
    }
  }
}
// The sum over the four lanes of a row, returned to each.
template <class T>
__device__ T sum_of_row(T x) {
  x += __shfl_xor_sync(whole_warp, x, 1);
  return x + __shfl_xor_sync(whole_warp, x, 2);
}

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
