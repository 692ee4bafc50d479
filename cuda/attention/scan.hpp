// Sums along the rows of a tile of pairs, by shuffles between the four lanes of a row.
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
