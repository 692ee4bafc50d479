// Sums along the rows of a tile of pairs, by shuffles between the four lanes of a row, and down its columns, by those
// between the eight lanes of a column and from one warp to the next.
#pragma once

#include "cuda/attention_device.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

inline constexpr int columns = tile / row_lanes;  // of the pairs that a thread has of each row
inline constexpr int pair_ld = tile + 4;          // of a tile of pairs in shared memory, [rows][keys]

// A running sum with what rounding loses kept beside it.
template <class T>
struct RunningSum {
  T sum = 0, lost = 0;
  __device__ void add(T value) {
    const T next = sum + value;
    lost += (sum - next) + value;
    sum = next;
  }
  __device__ T value() const { return sum + lost; }
  // Tiles begin with what can be kept between them.
  __device__ T settle() {
    sum += lost;
    lost = 0;
    return sum;
  }
};

// Each of a row's pairs becomes the sum of itself and those to its right in the tile, and of what `sums` held before,
// which then hold those of the whole row as well.
template <class T>
__device__ void sum_leftward(T (&x)[2][columns], RunningSum<T> (&sums)[2]) {
  const int lane = lane_of_warp() % row_lanes;
  TALLY_UNROLL
  for (int r = 0; r < 2; ++r) {
    TALLY_UNROLL
    for (int c = columns - 2; c >= 0; c -= 2) {
      // Over the pairs of columns of the lanes from this one on, then without it.
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
// The sum over the four lanes of a row; each gets it.
template <class T>
__device__ T sum_of_row(T x) {
  x += __shfl_xor_sync(whole_warp, x, 1);
  return x + __shfl_xor_sync(whole_warp, x, 2);
}

// The rows that a sum down a column is over: those before its own, or those after it.
enum class Over : bool { earlier, later };

// Over the lanes of a column, of which each has a row: the sum over the others on that side; all: over all of them.
template <Over rows, class T>
__device__ T sum_of_lines(T x, T& all) {
  constexpr bool earlier = rows == Over::earlier;
  constexpr int lines = 32 / row_lanes;
  const int line = lane_of_warp() / row_lanes, others = earlier ? line : lines - 1 - line;
  const auto moved = [](T y, int by) {
    return earlier ? __shfl_up_sync(whole_warp, y, static_cast<unsigned>(by * row_lanes))
                   : __shfl_down_sync(whole_warp, y, static_cast<unsigned>(by * row_lanes));
  };
  T upto = x;
  TALLY_UNROLL
  for (int by = 1; by < lines; by *= 2) {
    const T more = moved(upto, by);
    upto += others >= by ? more : T{0};
  }
  all = __shfl_sync(whole_warp, upto, (earlier ? lines - 1 : 0) * row_lanes + lane_of_warp() % row_lanes);
  const T without = moved(upto, 1);
  return others > 0 ? without : T{0};
}

// A warp's sum of one column, for its neighbour: where lines of its rows in shared memory have no pairs, so that they
// begin in different banks. Sums of the two directions have memory of their own: a warp may be past one barrier while
// the other reads what was written before it.
template <Over rows, class T>
__device__ T& sum_of_column(T* scratch, int column) {
  constexpr int spare = pair_ld - tile;
  const int line = column / spare + (rows == Over::earlier ? 0 : warp_rows / 2);
  return scratch[line * pair_ld + tile + column % spare];
}

// Each pair becomes the sum of its column over the others on that side among the rows of the warp and its neighbour,
// which are down_rows. By all threads of the block; those of a tile before must have been read.
template <Over rows, class T>
__device__ void sum_columns(T (&x)[2][columns], T* scratch) {
  constexpr int first = rows == Over::earlier ? 0 : 1, second = 1 - first;
  TALLY_UNROLL
  for (int c = 0; c < columns; ++c) {
    T of_first, of_second;
    x[first][c] = sum_of_lines<rows>(x[first][c], of_first);
    x[second][c] = of_first + sum_of_lines<rows>(x[second][c], of_second);
    if (lane_of_warp() < row_lanes) sum_of_column<rows>(scratch, tile_column(c)) = of_first + of_second;
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32, other = warp + (rows == Over::earlier ? -1 : 1);
  if (other / 2 != warp / 2 || other < 0 || other >= static_cast<int>(blockDim.x) / 32) return;
  T* const of_other = scratch + (other - warp) * warp_rows * pair_ld;
  TALLY_UNROLL
  for (int c = 0; c < columns; ++c) {
    const T sum = sum_of_column<rows>(of_other, tile_column(c));
    x[0][c] += sum;
    x[1][c] += sum;
  }
}

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
