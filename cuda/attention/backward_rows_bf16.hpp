// Fused attention backward by rows with bf16 operands: a block has 64 queries, which stay in shared memory, and takes
// the stages of keys from left to right. The gradients of scores are the left operand of their product with the keys,
// so they stay in registers. See cuda/attention/backward_rows.hpp.
#pragma once

#include "cuda/attention/backward_bf16.hpp"
#include "cuda/attention/row_gradients.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

template <int D, Family family, class Mod>
struct RowsBlock {
  static constexpr bool gated = family == Family::gated, skips = skips_saturated<family, Mod>;
  static constexpr int buffers = stage_buffers<D, family>, elements = StagedOperands<D, gated>::elements;

  // Shared memory: the rows, the stages of keys, then tiles of pairs in f32, if needed.
  static std::size_t shared_bytes(const DeviceCall<float>& call) {
    const bool any = call.bias_count > 0 || call.drop_below > 0 || call.keeps_logits;
    const int tiles = (any ? 1 : 0) + (call.keeps_places ? 1 : 0) + (call.keeps_entries ? 1 : 0);
    return (1 + buffers) * elements * sizeof(std::uint16_t) +
           static_cast<std::size_t>(tiles * stage_rows * pair_ld) * sizeof(float);
  }

  const DeviceCall<float>& call;
  const ThreadRows at;
  const StagePlace<D> place;
  const StagedOperands<D, gated> keys;
  std::uint16_t* const rows;
  RowState<float> state;
  float d_q[2][width_columns<D>] = {}, d_gate_q[2][width_columns<D>] = {};
  float d_last[2] = {};  // gradient of the table's last entry in plain stages

  __device__ RowsBlock(const DeviceCall<float>& own, int first, std::uint16_t* memory)
      : call(own),
        at(call, first),
        keys(call, call.k, call.v, call.score_mod.gate_key, at.batch, at.head / call.gqa_group_size, place),
        rows(memory),
        state(call, at) {}

  __device__ void run(int first_row) {
    const int row_count = call.queries - first_row < stage_rows ? call.queries - first_row : stage_rows;
    const int first_query = at.before + first_row, last_query = first_query + row_count - 1;
    const StageOrder order(call, first_query, last_query, has_plain_stages<family, Mod>(call));
    const StagedOperands<D, gated> own(call, call.q, call.rounded_d_output, call.score_mod.gate_query, at.batch,
                                       at.head, place);
    own.template stage<false>(place, rows, first_row, row_count);
    std::uint16_t* buffer = rows + elements;
    int stage = order.first();
    const auto copy_keys = [&](std::uint16_t* to, int next) {
      if (next <= order.last) keys.template stage<false>(place, to, next * stage_rows, call.keys - next * stage_rows);
    };
    copy_keys(buffer, stage);
    const auto begin = [&] {
      return stage > order.last ? Loop::none : begin_stage<family, Mod>(call, at, stage, order.is_plain(stage));
    };
    const auto take = [&]<Loop loop>() {
      const int next = order.right_of(stage);
      if constexpr (buffers == 2) {
        std::uint16_t* const other = rows + (buffer == rows + elements ? 2 : 1) * elements;
        copy_keys(other, next);
        take_stage<loop>(buffer, stage);
        buffer = other;
      } else {
        take_stage<loop>(buffer, stage);
        __syncthreads();
        copy_keys(buffer, next);
      }
      stage = next;
    };
    for (Loop loop = begin(); loop != Loop::none;) {
      if constexpr (!has_score_mod<Mod> || skips) {
        const float m[2] = {state.m[0], state.m[1]};
        if (skips && loop == Loop::plain) state.m[0] -= last_entry(call, at, 0), state.m[1] -= last_entry(call, at, 1);
        for (; loop == Loop::plain; loop = begin()) take.template operator()<Loop::plain>();
        state.m[0] = m[0], state.m[1] = m[1];
      }
      if constexpr (has_score_mod<Mod>) {
        for (; loop == Loop::scanning; loop = begin()) take.template operator()<Loop::scanning>();
      }
      for (; loop == Loop::masked; loop = begin()) take.template operator()<Loop::masked>();
    }
    finish();
  }

 private:
  template <Loop loop>
  __device__ void take_stage(const std::uint16_t* buffer, int stage) {
    TALLY_ROLLED
    for (int first = 0; first < stage_rows; first += tile) take_tile<loop>(buffer, first, stage * stage_rows + first);
  }

  template <Loop loop>
  __device__ void take_tile(const std::uint16_t* buffer, int first, int first_key) {
    constexpr bool masked = loop == Loop::masked;
    const int key_tile = first_key / tile;
    const bool takes_part = !masked || at.warp_sees(first_key);
    // The warp's rows of tiles in f32; d_logits is scratch before.
    float* const d_logits = reinterpret_cast<float*>(rows + (1 + buffers) * elements) + at.warp * warp_rows * pair_ld;
    float* const places = d_logits + stage_rows * pair_ld;
    StagedGradients<family, Mod, loop> gradients(call, at, key_tile);
    if (takes_part) {
      multiply_scores<D, gated>(gradients, rows, at, buffer, first);
      gradients.make_weights(call, at, key_tile, state, d_logits);
      if (loop != Loop::plain && call.keeps_places) {
        store_pairs(places, traits_of<Mod>.own_position ? gradients.pairs.places : gradients.pairs.positions);
      }
      multiply_d_weights<D>(gradients, rows, at, buffer, first);
      TALLY_UNROLL
      for (int r = 0; r < 2; ++r) {
        if (loop != Loop::plain && traits_of<Mod>.sums && at.valid(r) && at.leads()) {
          call.d_prefix_sums[at.index(call, r) * call.tiles() + key_tile] = state.run[r];
        }
      }
      gradients.finish(call, at, key_tile, state, d_logits, true);
      if constexpr (reaches_scores<family, Mod>()) multiply_values<D>(d_q, gradients.d_scores, buffer, first);
      if constexpr (gated) {
        multiply_values<D>(d_gate_q, gradients.d_gate_scores, buffer + 2 * stage_elements<D>, first);
      }
    }
    if constexpr (loop == Loop::plain) {
      if (skips) each_pair([&](int r, int c) { d_last[r] += gradients.d_logits[r][c]; });
    } else if (call.keeps_logits) {
      store_pairs(d_logits, gradients.d_logits);  // 0 if the warp's tile is masked
      if (call.keeps_entries) store_pairs(places + stage_rows * pair_ld, gradients.d_entries);
      __syncwarp();
      if (takes_part) {
        add_to_rows<Mod>(call, at, first_key, gradients.pairs, d_logits, places + stage_rows * pair_ld, places);
      }
      if (masked && call.by_distance) {
        __syncthreads();
        const int count = call.keys - first_key < tile ? call.keys - first_key : tile;
        const int row_block = (at.first - at.warp * warp_rows) / stage_rows;
        add_by_distance(call, d_logits - at.warp * warp_rows * pair_ld, row_block, first_key, count);
        __syncthreads();
      }
      __syncwarp();
    }
  }

  __device__ void finish() {
    const float scale[2] = {call.scale, call.scale};
    store_rows<D>(call.d.q, call.is_bf16.d_q, at, d_q, 0, call.width, scale);
    if constexpr (gated) store_rows<D>(call.d.score_mod.gate_query, false, at, d_gate_q, 0, call.gate_width, scale);
    if constexpr (skips) {
      TALLY_UNROLL
      for (int r = 0; r < 2; ++r) {
        const float sum = sum_of_row(d_last[r]);
        if (call.d.score_mod.table.data == nullptr || !at.valid(r) || !at.leads()) continue;
        call.d.score_mod.table.head(at.batch, at.head).at(at.row(r), call.entries - 1) += sum;
      }
    }
    finish_rows<Mod>(call, at);
  }
};

template <int D, Family family, class Mod>
__global__ void __launch_bounds__(stage_threads, backward_blocks_at_once<D, family>)
    attention_backward_rows_bf16(const __grid_constant__ DeviceCall<float> call) {
#if defined(TALLY_TENSOR_CORES)
  SHARED_DYNAMIC(std::uint16_t, memory);
  // The last rows have the most keys, so their blocks start first.
  const int first_row = static_cast<int>(gridDim.y - 1 - blockIdx.y) * stage_rows;
  RowsBlock<D, family, Mod>(call, first_row, memory).run(first_row);
#endif
}

template <class Mod>
void backward_rows_bf16(const AttentionCall& call, const DeviceCall<float>& device) {
  visit_bf16_form<Mod, widest_in_backward<Mod>>(call, [&]<int D, Family family>() {
    launch(attention_backward_rows_bf16<D, family, Mod>,
           grid_of(call.batch() * call.heads(), call.queries(), stage_rows, 1), stage_threads,
           RowsBlock<D, family, Mod>::shared_bytes(device), context().stream, device);
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
