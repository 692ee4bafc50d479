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
// Number of stages in shared memory. With one, the next copies start after the last reads.
template <int D, Family family>
inline constexpr int stage_buffers = D > 64 || family == Family::gated ? 1 : 2;

// The tiles of keys that a block takes.
struct StageOrder {
  int last;                    // the first that it takes; the others follow to the left
  int least, sinks;            // then those from `least` on, then those below `sinks`
  int plain_begin, plain_end;  // all rows attend to these

  template <class T>
  __device__ StageOrder(const DeviceCall<T>& call, int first_query, int last_query, bool any_plain)
      : last(last_query / stage_rows),
        least(static_cast<int>(call.mask.begin(first_query)) / stage_rows),
        sinks(static_cast<int>(call.mask.first < call.keys ? call.mask.first : call.keys) + stage_rows - 1) {
    sinks /= stage_rows;
    plain_begin = (static_cast<int>(call.mask.begin(last_query)) + stage_rows - 1) / stage_rows;
    plain_end = any_plain ? (first_query + 1) / stage_rows : 0;
  }
  __device__ bool is_plain(int stage) const { return plain_begin <= stage && stage < plain_end; }
  // -1 after the end
  __device__ int after(int stage) const { return stage > least ? stage - 1 : (stage < sinks ? stage : sinks) - 1; }
  // The same from left to right, where `last` is the last.
  __device__ int first() const { return sinks > 0 ? 0 : least; }
  __device__ int right_of(int stage) const { return stage + 1 < sinks || stage + 1 > least ? stage + 1 : least; }
};

// masked: any tile. The others have all of their pairs, and neither biases nor dropout. scanning: with a score
// modification; plain: without, or once each row adds a constant to its scores.
enum class Loop : std::uint8_t { masked, scanning, plain, none };

// Whether a call has tiles without masks, biases and dropout, whose weights are exponentials if the family is not
// ruled.
template <Family family, class Mod>
__device__ bool has_plain_stages(const DeviceCall<float>& call) {
  const Rule rule = rule_of<family>(call);
  return call.bias_count == 0 && call.drop_below == 0 &&
         (!has_score_mod<Mod> || rule == Rule::softmax || rule == Rule::exp);
}

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

// The rows of three operands, tile after tile: k, v and the keys of gates, or q, the gradient of the output and the
// queries of gates. The third only with gates of their own.
template <int D, bool gated>
struct StagedOperands {
  static constexpr int elements = (gated ? 3 : 2) * stage_elements<D>;
  StagedRows<D> scored, valued, gating;

  __device__ StagedOperands(const DeviceCall<float>& call, const Rows<float>& of_scores, const Rows<float>& of_values,
                            const Rows<float>& of_gates, int batch, int head, const StagePlace<D>& own)
      : scored(of_scores, batch, head, call.width, own),
        valued(of_values, batch, head, call.value_width, own),
        gating(gated ? of_gates : of_scores, batch, head, call.gate_width, own) {}

  template <bool whole>
  __device__ void stage(const StagePlace<D>& own, std::uint16_t* target, int first, int count) const {
    scored.template stage<whole>(own, target, first, count);
    valued.template stage<whole>(own, target + stage_elements<D>, first, count);
    if constexpr (gated) gating.template stage<whole>(own, target + 2 * stage_elements<D>, first, count);
  }
};

// The left operand of mma.sync: 16 columns of 16 rows.
struct Fragment {
  std::uint32_t pairs[4];
};

// The fragments of a warp's 16 rows of a tile, from row `first` on.
template <int D>
struct SharedRows {
  const std::uint16_t* source;
  int place;
  __device__ SharedRows(const std::uint16_t* tile_of_rows, int first)
      : source(tile_of_rows + first * D),
        place(lane_of_warp() % 16 * D + stage_chunk * (lane_of_warp() / 16 ^ lane_of_warp() % matrix_rows)) {}
  __device__ Fragment operator[](int k) const {
    Fragment own;
    detail::load_matrices<false>(own.pairs, source + (place ^ 2 * stage_chunk * k));
    return own;
  }
};

// The same in registers. The numbers are multiplied by `factor` and rounded again.
template <int D>
__device__ void load_rows(Fragment (&rows)[product_steps<D>], const std::uint16_t* source, int first, float factor) {
  const SharedRows<D> from(source, first);
  TALLY_UNROLL
  for (int k = 0; k < D / 16; ++k) {
    rows[k] = from[k];
    TALLY_UNROLL
    for (std::uint32_t& pair : rows[k].pairs) {
      pair = detail::as_bf16_pair(std::bit_cast<float>(pair << 16) * factor,
                                  std::bit_cast<float>(pair & 0xffff0000U) * factor);
    }
  }
}

namespace detail_of_stage {

// Columns c .. c + 1 of both rows of `result` += a b.
template <std::size_t C>
__device__ void multiply_block(float (&result)[2][C], int c, const Fragment& a, std::uint32_t b0, std::uint32_t b1) {
  float block[4] = {result[0][c], result[0][c + 1], result[1][c], result[1][c + 1]};
  detail::mma_bf16(block, a.pairs, {b0, b1});
  result[0][c] = block[0], result[0][c + 1] = block[1], result[1][c] = block[2], result[1][c + 1] = block[3];
}

// The lane's place in 16 rows of a tile that are the right operand.
template <int D>
__device__ int right_place() {
  const int lane = lane_of_warp();
  return detail::recomputed(lane % 16 * D + stage_chunk * (lane / 16 ^ lane % matrix_rows));
}
// o += a b, for the 16 rows of a tile that `b` points to.
template <int D>
__device__ void multiply_rows(float (&o)[2][width_columns<D>], const Fragment& a, const std::uint16_t* b, int place) {
  TALLY_UNROLL
  for (int d = 0; d < D / 16; ++d) {
    std::uint32_t x[4];
    detail::load_matrices<true>(x, b + (place ^ 2 * stage_chunk * d));
    multiply_block(o, 4 * d, a, x[0], x[1]);
    multiply_block(o, 4 * d + 2, a, x[2], x[3]);
  }
}

}  // namespace detail_of_stage

// scores += rows . keys, for the 4 C keys of a tile from row `first` on. rows[k]: the fragments of the rows.
template <int D, std::size_t C, class RowFragments>
__device__ void multiply_keys(float (&scores)[2][C], const RowFragments& rows, const std::uint16_t* keys, int first) {
  const int lane = lane_of_warp(), line = lane % matrix_rows;
  const int own = (lane / 16 * matrix_rows + line) * D + stage_chunk * (lane / matrix_rows % 2 ^ line);
  const int place = detail::recomputed(own);
  TALLY_UNROLL
  for (int k = 0; k < D / 16; ++k) {
    const Fragment a = rows[k];
    TALLY_UNROLL
    for (int c = 0; c < static_cast<int>(C); c += 4) {
      std::uint32_t b[4];
      detail::load_matrices<false>(b, keys + (place ^ 2 * stage_chunk * k) + (first + 4 * c) * D);
      detail_of_stage::multiply_block(scores, c, a, b[0], b[1]);
      detail_of_stage::multiply_block(scores, c + 2, a, b[2], b[3]);
    }
  }
}

// o += weights values, for the 4 C keys of a tile from row `first` on. Results of mma.sync for two neighbouring blocks
// of keys are in the registers of its left operand.
template <int D, std::size_t C>
__device__ void multiply_values(float (&o)[2][width_columns<D>], const float (&weights)[2][C],
                                const std::uint16_t* values, int first) {
  const int place = detail_of_stage::right_place<D>();
  TALLY_UNROLL
  for (int c = 0; c < static_cast<int>(C); c += 4) {
    const Fragment a{{detail::as_bf16_pair(weights[0][c], weights[0][c + 1]),
                      detail::as_bf16_pair(weights[1][c], weights[1][c + 1]),
                      detail::as_bf16_pair(weights[0][c + 2], weights[0][c + 3]),
                      detail::as_bf16_pair(weights[1][c + 2], weights[1][c + 3])}};
    detail_of_stage::multiply_rows<D>(o, a, values + (first + 4 * c) * D, place);
  }
}

// A tile of pairs in bf16, [stage_rows][stage_rows]: rows and keys, in the chunks of a tile of 64 columns.
inline constexpr int staged_pairs = stage_elements<stage_rows>;

// Writes a warp's 16 x 32 pairs from row `first_row` and key `first` of the tile on.
__device__ inline void stage_pairs(std::uint16_t* pairs, int first_row, int first, const float (&x)[2][columns]) {
  const int line = first_row + tile_row(0), pair = 2 * (lane_of_warp() % row_lanes);
  TALLY_UNROLL
  for (int c = 0; c < columns; c += 2) {
    const int chunk = (first / stage_chunk + c / 2) ^ (line % matrix_rows);
    TALLY_UNROLL
    for (int r = 0; r < 2; ++r) {
      std::uint16_t* const own = pairs + (line + matrix_rows * r) * stage_rows + stage_chunk * chunk + pair;
      *vector_at<std::uint32_t>(own) = detail::as_bf16_pair(x[r][c], x[r][c + 1]);
    }
  }
}

// o += pairs^T rows, for the 16 keys of the pairs from `first` on and all rows of both tiles.
template <int D>
__device__ void multiply_pairs(float (&o)[2][width_columns<D>], const std::uint16_t* pairs, int first,
                               const std::uint16_t* rows) {
  const int lane = lane_of_warp(), line = lane / 16 * matrix_rows + lane % matrix_rows;
  const int chunk = (first / stage_chunk + lane / matrix_rows % 2) ^ (lane % matrix_rows);
  const std::uint16_t* const own = pairs + line * stage_rows + stage_chunk * chunk;
  const int place = detail_of_stage::right_place<D>();
  TALLY_UNROLL
  for (int k = 0; k < stage_rows; k += 16) {
    Fragment a;
    detail::load_matrices<true>(a.pairs, own + k * stage_rows);
    detail_of_stage::multiply_rows<D>(o, a, rows + k * D, place);
  }
}

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
