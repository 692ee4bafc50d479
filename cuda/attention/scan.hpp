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
// The same by products, or with `leftward` false from the left: each pair is replaced by the sum of `sums`, itself and
// the pairs to its left. The pairs of 16 keys are the left operand, as bf16 and the rest after rounding, so a sum has a
// relative error of 2^-17. The right operand is a triangle: column n has ones from row n on, or up to row n.
template <bool leftward>
__device__ void sum_on_tensor_cores(float (&x)[2][columns], RunningSum<float> (&sums)[2]) {
  constexpr std::uint32_t low_one = 0x3f80, high_one = low_one << 16, ones = low_one | high_one;
  const int column = lane_of_warp() / row_lanes, row = 2 * (lane_of_warp() % row_lanes);
  const auto one = [&](int at, std::uint32_t bits) { return (leftward ? at >= column : at <= column) ? bits : 0; };
  const std::uint32_t triangle = one(row, low_one) | one(row + 1, high_one);
  TALLY_UNROLL
  for (int n = 0; n < columns; n += 4) {
    const int c = leftward ? columns - 4 - n : n;
    std::uint32_t rounded[4], rest[4];
    TALLY_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float low = x[i % 2][c + i / 2 * 2], high = x[i % 2][c + i / 2 * 2 + 1];
      rounded[i] = detail::as_bf16_pair(low, high);
      rest[i] = detail::as_bf16_pair(low - std::bit_cast<float>(rounded[i] << 16),
                                     high - std::bit_cast<float>(rounded[i] & 0xffff0000U));
    }
    const float upper = sums[0].value(), lower = sums[1].value();
    float left[4] = {upper, upper, lower, lower}, right[4] = {upper, upper, lower, lower}, all[4] = {};
    const auto add = [&](const std::uint32_t(&pairs)[4]) {
      detail::mma_bf16(left, pairs, {triangle, leftward ? ones : 0});
      detail::mma_bf16(right, pairs, {leftward ? 0 : ones, triangle});
      detail::mma_bf16(all, pairs, {ones, ones});
    };
    add(rounded);
    add(rest);
    TALLY_UNROLL
    for (int i = 0; i < 4; ++i) x[i / 2][c + i % 2] = left[i], x[i / 2][c + 2 + i % 2] = right[i];
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
