// Fused attention backward by keys with bf16 operands: a block has 64 keys, which stay in shared memory, and takes the
// query heads that share them one after the other, and each head's stages of rows from the diagonal down. Each warp
// makes weights and gradients of scores of 16 rows. They go through shared memory in bf16, and then each warp sums over
// all rows of the stage for 16 keys. See cuda/attention/backward_keys.hpp.
#pragma once

#include "cuda/attention/backward_bf16.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

template <int D, Family family, class Mod>
struct KeysBlock {
  static constexpr bool gated = family == Family::gated, skips = skips_saturated<family, Mod>;
  static constexpr bool to_scores = reaches_scores<family, Mod>();
  static constexpr int buffers = stage_buffers<D, family>, elements = StagedOperands<D, gated>::elements;
  static constexpr int state_elements = stage_rows * numbers_per_row * 2;  // two for each f32
  static constexpr int buffer_elements = elements + state_elements;
  static constexpr int pair_tiles = gated ? 3 : 2;  // weights, d_scores, d_gate_scores

  // Shared memory: the keys, the stages of rows, the tiles of pairs in bf16, then one in f32, if needed.
  static std::size_t shared_bytes(const DeviceCall<float>& call) {
    const int scratch = call.bias_count > 0 || call.drop_below > 0 ? stage_rows * pair_ld : 0;
    return static_cast<std::size_t>(elements + buffers * buffer_elements + pair_tiles * staged_pairs) *
               sizeof(std::uint16_t) +
           static_cast<std::size_t>(scratch) * sizeof(float);
  }

  const DeviceCall<float>& call;
  const int batch, key_head, first_head, first_key, key_count, before;
  const StagePlace<D> place;
  const StagedOperands<D, gated> rows;  // of the first head; the next heads follow
  std::uint16_t *const keys, *const pairs;
  float* const scratch;
  float d_k[2][width_columns<D>] = {}, d_v[2][width_columns<D>] = {}, d_gate_k[2][width_columns<D>] = {};

  __device__ KeysBlock(const DeviceCall<float>& own, int first, std::uint16_t* memory)
      : call(own),
        batch(static_cast<int>(blockIdx.x) / (call.heads / call.gqa_group_size)),
        key_head(static_cast<int>(blockIdx.x) % (call.heads / call.gqa_group_size)),
        first_head(key_head * call.gqa_group_size),
        first_key(first),
        key_count(call.keys - first < stage_rows ? call.keys - first : stage_rows),
        before(call.keys - call.queries),
        rows(call, call.q, call.rounded_d_output, call.score_mod.gate_query, batch, first_head, place),
        keys(memory),
        pairs(memory + elements + buffers * buffer_elements),
        scratch(reinterpret_cast<float*>(pairs + pair_tiles * staged_pairs)) {}

  __device__ void run() {
    const StagedOperands<D, gated> own(call, call.k, call.v, call.score_mod.gate_key, batch, key_head, place);
    own.template stage<false>(place, keys, first_key, key_count);

    // The rows that attend to a key, and the rows of stages without masks.
    const int last_key = first_key + key_count - 1;
    const int begin_row = first_key > before ? first_key - before : 0;
    const int end_row = end_of(call.mask, first_key < call.mask.first ? first_key : last_key);
    AttentionMask without_sinks = call.mask;
    without_sinks.first = 0;
    const bool any_plain = has_plain_stages<family, Mod>(call) && key_count == stage_rows;
    const int plain_begin = any_plain ? last_key - before : call.queries, plain_end = end_of(without_sinks, first_key);
    const int first_stage = begin_row / stage_rows, last_stage = (end_row - 1) / stage_rows;
    const int end_head = first_head + call.gqa_group_size;

    std::uint16_t* buffer = keys + elements;
    int head = begin_row < end_row ? first_head : end_head, stage = first_stage;
    const auto copy_rows = [&](std::uint16_t* to, int own_head, int own_stage) {
      if (own_head < end_head) stage_own_rows(to, own_head, own_stage * stage_rows);
    };
    copy_rows(buffer, head, stage);
    const auto begin = [&] {
      if (head == end_head) return Loop::none;
      const int row = stage * stage_rows, end = row + row_count(row);
      return begin_stage<family, Mod>(call, ThreadRows(call, row, batch, head), first_key / stage_rows,
                                      plain_begin <= row && end <= plain_end);
    };
    const auto take = [&]<Loop loop>() {
      const bool is_last = stage == last_stage;
      const int next_head = head + (is_last ? 1 : 0), next = is_last ? first_stage : stage + 1;
      if constexpr (buffers == 2) {
        std::uint16_t* const other = keys + elements + (buffer == keys + elements ? buffer_elements : 0);
        copy_rows(other, next_head, next);
        take_stage<loop>(buffer, head, stage * stage_rows);
        buffer = other;
      } else {
        take_stage<loop>(buffer, head, stage * stage_rows);
        __syncthreads();
        copy_rows(buffer, next_head, next);
      }
      head = next_head;
      stage = next;
    };
    for (Loop loop = begin(); loop != Loop::none;) {
      for (; loop == Loop::masked; loop = begin()) take.template operator()<Loop::masked>();
      if constexpr (has_score_mod<Mod>) {
        for (; loop == Loop::scanning; loop = begin()) take.template operator()<Loop::scanning>();
      }
      if constexpr (!has_score_mod<Mod> || skips) {
        for (; loop == Loop::plain; loop = begin()) take.template operator()<Loop::plain>();
      }
    }
    store(call.d.k, call.is_bf16.d_k, d_k, call.width);
    store(call.d.v, call.is_bf16.d_v, d_v, call.value_width);
    if constexpr (gated) store(call.d.score_mod.gate_key, false, d_gate_k, call.gate_width);
  }

 private:
  // The row after the last that attends to the key.
  __device__ int end_of(const AttentionMask& mask, int key) const {
    const std::int64_t end = mask.end(key) - before;
    return end < call.queries ? static_cast<int>(end) : call.queries;
  }
  __device__ int row_count(int first_row) const {
    return call.queries - first_row < stage_rows ? call.queries - first_row : stage_rows;
  }

  __device__ void stage_own_rows(std::uint16_t* to, int head, int first_row) const {
    const int count = row_count(first_row), line = static_cast<int>(threadIdx.x);
    rows.template stage<false>(place, to, (head - first_head) * call.queries + first_row, count);
    if (line >= stage_rows) return;
    const std::int64_t row = (static_cast<std::int64_t>(batch) * call.heads + head) * call.queries + first_row + line;
    const bool given = line < count;
    detail::start_copy(to + elements + state_elements / stage_rows * line,
                       reinterpret_cast<const std::uint16_t*>(call.row_states + numbers_per_row * (given ? row : 0)),
                       given);
  }

  template <Loop loop>
  __device__ void take_stage(const std::uint16_t* buffer, int head, int first_row) {
    const ThreadRows at(call, first_row, batch, head);
    RowState<float> state(reinterpret_cast<const float*>(buffer + elements) + numbers_per_row * at.warp * warp_rows,
                          at);
    if (skips && loop == Loop::plain) state.m[0] -= last_entry(call, at, 0), state.m[1] -= last_entry(call, at, 1);
    TALLY_ROLLED
    for (int first = 0; first < stage_rows; first += tile) make_pairs<loop>(buffer, at, state, first);
    __syncthreads();
    const int own = at.warp * warp_rows;
    multiply_pairs<D>(d_v, pairs, own, buffer + stage_elements<D>);
    if constexpr (to_scores) multiply_pairs<D>(d_k, pairs + staged_pairs, own, buffer);
    if constexpr (gated) multiply_pairs<D>(d_gate_k, pairs + 2 * staged_pairs, own, buffer + 2 * stage_elements<D>);
  }

  template <Loop loop>
  __device__ void make_pairs(const std::uint16_t* buffer, const ThreadRows& at, RowState<float>& state, int first) {
    const int key_tile = (first_key + first) / tile;
    float* const own_scratch = scratch + at.warp * warp_rows * pair_ld;
    StagedGradients<family, Mod, loop> gradients(call, at, key_tile);
    if (loop != Loop::masked || at.warp_sees(first_key + first)) {
      multiply_scores<D, gated>(gradients, buffer, at, keys, first);
      gradients.make_weights(call, at, key_tile, state, own_scratch);
      multiply_d_weights<D>(gradients, buffer, at, keys, first);
      TALLY_UNROLL
      for (int r = 0; r < 2; ++r) {
        if (loop != Loop::plain && traits_of<Mod>.sums && gradients.pairs.takes_part(r)) {
          state.run[r] = call.d_prefix_sums[at.index(call, r) * call.tiles() + key_tile];
        }
      }
      gradients.finish(call, at, key_tile, state, own_scratch, false);
    }
    // Zeros if the warp's tile is masked.
    const int own = at.warp * warp_rows;
    stage_pairs(pairs, own, first, gradients.weights);
    if constexpr (to_scores) stage_pairs(pairs + staged_pairs, own, first, gradients.d_scores);
    if constexpr (gated) stage_pairs(pairs + 2 * staged_pairs, own, first, gradients.d_gate_scores);
    if (loop == Loop::masked && call.by_column) {
      store_pairs(own_scratch, gradients.d_logits);
      __syncthreads();
      add_to_columns(at.head, first);
      __syncthreads();
    }
  }

  // Adds the sums of d_logits over the rows of a tile to the gradients of biases of columns.
  __device__ void add_to_columns(int head, int first) const {
    const int column = static_cast<int>(threadIdx.x);
    if (column >= tile || first + column >= key_count) return;
    double sum = 0;
    for (int i = 0; i < stage_rows; ++i) sum += static_cast<double>(scratch[i * pair_ld + column]);
    for (int n = 0; n < call.bias_count; ++n) {
      const Rows<double> d_column = call.biases[n].d.column.as_double();
      if (d_column.data != nullptr) d_column.head(batch, head).at(first_key + first + column) += sum;
    }
  }

  __device__ void store(const Rows<float>& x, bool is_bf16, const float (&values)[2][width_columns<D>],
                        int width) const {
    const int own = static_cast<int>(threadIdx.x) / 32 * warp_rows;
    store_rows(x, is_bf16, {batch, key_head, first_key + own, first_key + key_count, 0, width}, values);
  }
};

template <int D, Family family, class Mod>
__global__ void __launch_bounds__(stage_threads, backward_blocks_at_once<D, family>)
    attention_backward_keys_bf16(const __grid_constant__ DeviceCall<float> call) {
#if defined(TALLY_TENSOR_CORES)
  SHARED_DYNAMIC(std::uint16_t, memory);
  KeysBlock<D, family, Mod>(call, static_cast<int>(blockIdx.y) * stage_rows, memory).run();
#endif
}

template <class Mod>
void backward_keys_bf16(const AttentionCall& call, const DeviceCall<float>& device) {
  visit_bf16_form<Mod, widest_in_backward<Mod>>(call, [&]<int D, Family family>() {
    launch(attention_backward_keys_bf16<D, family, Mod>,
           grid_of(call.batch() * key_heads(call), call.keys(), stage_rows, 1), stage_threads,
           KeysBlock<D, family, Mod>::shared_bytes(device), context().stream, device);
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
