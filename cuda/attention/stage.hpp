// bf16 tiles in shared memory and their products on tensor cores. A row of a tile has D numbers in chunks of 8, which
// are 16 bytes. Row i keeps its chunk c at place c ^ (i % 8), so that the eight rows of a matrix that ldmatrix reads
// are in different banks.
#pragma once

#include "cuda/attention/tile.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

inline constexpr int stage_rows = 64;      // rows of a tile
inline constexpr int stage_threads = 128;  // of a block
inline constexpr int stage_chunk = 8;      // numbers
inline constexpr int matrix_rows = 8;

template <int D>
inline constexpr std::size_t product_steps = D / 16;  // of 16 columns
template <int D>
inline constexpr int stage_elements = stage_rows* D;

// A thread's part of a tile's copy: a chunk of every stage_lines-th row.
template <int D>
struct StagePlace {
  static constexpr int chunks = D / stage_chunk, lines = stage_threads / chunks;
  int line, chunk, place;  // place: in the tile
  __device__ StagePlace()
      : line(static_cast<int>(threadIdx.x) / chunks),
        chunk(static_cast<int>(threadIdx.x) % chunks),
        place(line * D + stage_chunk * (chunk ^ line % matrix_rows)) {}
};

// The rows of one head of q, k, v or of the operands of gates, in bf16: a thread's chunk of row `line`. Chunks are
// contiguous and aligned.
template <int D>
struct StagedRows {
  const std::uint16_t* from;
  std::int64_t row_step;
  bool has_columns;  // whether the chunk is within the width

  __device__ StagedRows(const Rows<float>& x, int batch, int head, int width, const StagePlace<D>& own)
      : from(reinterpret_cast<const std::uint16_t*>(x.data) + batch * x.batch_step + head * x.head_step +
             own.line * x.row_step + stage_chunk * own.chunk),
        row_step(x.row_step),
        has_columns(stage_chunk * own.chunk < width) {}

  // Begins to copy rows first + i, i < stage_rows, to a tile; 0 from row `count` on and beyond the width. Arrives at
  // wait_for_copies. By all threads of the block. whole: count is not below stage_rows.
  template <bool whole>
  __device__ void stage(const StagePlace<D>& own, std::uint16_t* target, int first, int count) const {
    const std::uint16_t* const row = from + first * row_step;
    TALLY_UNROLL
    for (int i = 0; i < stage_rows; i += StagePlace<D>::lines) {
      const bool given = has_columns && (whole || own.line + i < count);
      detail::start_copy(target + own.place + i * D, row + i * row_step, given);
    }
  }
};

// Registers of a warp's 16 rows of a tile from row `first` on, as the left operand of mma.sync: one for each 16
// columns. The numbers are multiplied by `factor` and rounded again.
template <int D>
__device__ void load_rows(std::uint32_t (&rows)[product_steps<D>][4], const std::uint16_t* source, int first,
                          float factor) {
  const int lane = lane_of_warp(), line = first + lane % 16;
  TALLY_UNROLL
  for (int k = 0; k < D / 16; ++k) {
    const int chunk = (2 * k + lane / 16) ^ (line % matrix_rows);
    detail::load_matrices<false>(rows[k], source + line * D + stage_chunk * chunk);
    TALLY_UNROLL
    for (std::uint32_t& pair : rows[k]) {
      pair = detail::as_bf16_pair(std::bit_cast<float>(pair << 16) * factor,
                                  std::bit_cast<float>(pair & 0xffff0000U) * factor);
    }
  }
}

namespace detail_of_stage {

// Columns c .. c + 1 of both rows of `result` += a b.
template <std::size_t C>
__device__ void multiply_block(float (&result)[2][C], int c, const std::uint32_t (&a)[4], std::uint32_t b0,
                               std::uint32_t b1) {
  float block[4] = {result[0][c], result[0][c + 1], result[1][c], result[1][c + 1]};
  detail::mma_bf16(block, a, {b0, b1});
  result[0][c] = block[0], result[0][c + 1] = block[1], result[1][c] = block[2], result[1][c + 1] = block[3];
}

}  // namespace detail_of_stage

// scores += rows . keys, for the 4 C keys of a tile from row `first` on.
template <int D, std::size_t C>
__device__ void multiply_keys(float (&scores)[2][C], const std::uint32_t (&rows)[product_steps<D>][4],
                              const std::uint16_t* keys, int first) {
  const int lane = lane_of_warp(), line = lane % matrix_rows;
  const int own = (lane / 16 * matrix_rows + line) * D + stage_chunk * (lane / matrix_rows % 2 ^ line);
  const int place = detail::recomputed(own);
  TALLY_UNROLL
  for (int k = 0; k < D / 16; ++k) {
    TALLY_UNROLL
    for (int c = 0; c < static_cast<int>(C); c += 4) {
      std::uint32_t b[4];
      detail::load_matrices<false>(b, keys + (place ^ 2 * stage_chunk * k) + (first + 4 * c) * D);
      detail_of_stage::multiply_block(scores, c, rows[k], b[0], b[1]);
      detail_of_stage::multiply_block(scores, c + 2, rows[k], b[2], b[3]);
    }
  }
}

// o += weights values, for the 4 C keys of a tile from row `first` on. Results of mma.sync for two neighbouring blocks
// of keys are in the registers of its left operand.
template <int D, std::size_t C>
__device__ void multiply_values(float (&o)[2][width_columns<D>], const float (&weights)[2][C],
                                const std::uint16_t* values, int first) {
  const int lane = lane_of_warp();
  const int own = lane % 16 * D + stage_chunk * (lane / 16 ^ lane % matrix_rows), place = detail::recomputed(own);
  TALLY_UNROLL
  for (int c = 0; c < static_cast<int>(C); c += 4) {
    const std::uint32_t a[4] = {detail::as_bf16_pair(weights[0][c], weights[0][c + 1]),
                                detail::as_bf16_pair(weights[1][c], weights[1][c + 1]),
                                detail::as_bf16_pair(weights[0][c + 2], weights[0][c + 3]),
                                detail::as_bf16_pair(weights[1][c + 2], weights[1][c + 3])};
    TALLY_UNROLL
    for (int d = 0; d < D / 16; ++d) {
      std::uint32_t b[4];
      detail::load_matrices<true>(b, values + (place ^ 2 * stage_chunk * d) + (first + 4 * c) * D);
      detail_of_stage::multiply_block(o, 4 * d, a, b[0], b[1]);
      detail_of_stage::multiply_block(o, 4 * d + 2, a, b[2], b[3]);
    }
  }
}

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
