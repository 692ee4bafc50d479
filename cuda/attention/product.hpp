// Products of queries and keys over the width of heads, with tiles of rows and keys in shared memory.
#pragma once

#include "cuda/attention/scan.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

__device__ inline int block_rows() { return static_cast<int>(blockDim.x) / 32 * warp_rows; }

template <int D>
inline constexpr int ld_of = D + 4;  // step between rows of a tile in shared memory
template <int D>
inline constexpr std::size_t width_columns = D / row_lanes;  // number of the D columns of a row that a thread has

// Number of parts of D columns in a width.
template <int D>
__host__ __device__ int parts_of(int width) {
  return width > D ? (width + D - 1) / D : 1;
}

// target[i][c] = factor x(first + i, part D + c) for i < lines, by all threads of the block; 0 beyond `count` rows and
// the width.
template <int D, class T>
__device__ void load_tile(T* target, int lines, const Rows<T>& x, int first, int count, int part, int width, T factor) {
  constexpr int four = 4;
  // Four aligned contiguous elements take one access.
  const bool together = x.column_step == 1 && x.row_step % four == 0 && width % four == 0 &&
                        reinterpret_cast<std::uintptr_t>(x.data) % (four * sizeof(T)) == 0;
  TALLY_UNROLL_BY(2)
  for (int n = static_cast<int>(threadIdx.x); n < lines * (D / four); n += static_cast<int>(blockDim.x)) {
    const int i = n / (D / four), c = n % (D / four) * four;
    const int column = part * D + c;
    T values[four] = {};
    if (together) {
      if (i < count && column < width) detail::read(values, &x.at(first + i, column));
    } else {
      TALLY_UNROLL
      for (int d = 0; d < four; ++d) {
        if (i < count && column + d < width) values[d] = x.at(first + i, column + d);
      }
    }
    TALLY_UNROLL
    for (T& value : values) value *= factor;
    detail::write(target + i * ld_of<D> + c, values);
  }
}

// A product over the width of heads, factor row_i . key_j, for the block's current rows and keys.
template <class T, int D>
struct HeadProduct {
  const Rows<T>&rows,
      &keys;  // members of the call, whose address is constant; saves registers for addresses
  int batch, head, key_head;
  int width;
  T factor;
  T *row_tile, *key_tile;  // [rows of a block][ld], [tile][ld]
  int first_row = 0, first_key = 0;
  int row_count = 0, key_count = 0;

  __device__ bool whole() const { return width <= D; }
  __device__ void load_rows(int part) const {
    load_tile<D>(row_tile, block_rows(), rows.head(batch, head), first_row, row_count, part, width, factor);
  }
  __device__ void load_keys(int part) const {
    load_tile<D>(key_tile, tile, keys.head(batch, key_head), first_key, key_count, part, width, T{1});
  }
  __device__ void set_rows(int first, int count) {
    first_row = first;
    row_count = count;
    load_rows(0);
  }
  __device__ void set_keys(int first, int count) {
    first_key = first;
    key_count = count;
    load_keys(0);
  }
  // pairs += the product, for the rows of this warp. All threads of the block must call it, with part 0 of both
  // operands in shared memory. Afterwards shared memory holds the last part.
  template <MatmulPrecision precision>
  __device__ void multiply(T (&pairs)[2][columns], int warp, bool takes_part) const {
    const int parts = parts_of<D>(width);
    for (int part = 0;;) {
      if (takes_part) {
        const int left = width - part * D;
        const int depth = left >= D ? D : static_cast<int>(left + product_step - 1) / product_step * product_step;
        multiply_tile<precision>(pairs, ByRow<T>{row_tile + warp * warp_rows * ld_of<D>, ld_of<D>},
                                 ByRow<T>{key_tile, ld_of<D>}, depth);
      }
      if (++part == parts) return;
      __syncthreads();
      load_rows(part);
      load_keys(part);
      __syncthreads();
    }
  }
};

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
