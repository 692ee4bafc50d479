// Fused attention forward with bf16 operands, for heads of up to 128 columns. A block has four warps with 16 queries
// each. It takes 64 keys at a time, from the diagonal to the left, and copies the next keys and values to shared memory
// during the current products. Tiles that all rows attend to have loops of their own without masks, and a score
// modification whose table is saturated costs nothing there.
#pragma once

#include "cuda/attention/softmax.hpp"
#include "cuda/attention/stage.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

template <int D, Family family, class Mod>
struct ForwardBlock {
  static constexpr bool gated = family == Family::gated;
  static constexpr int buffer_elements = StagedOperands<D, gated>::elements;
  static constexpr std::size_t plain_columns = stage_rows / row_lanes;
  // Gates with operands of their own may be NaN where the scores are not, so they are read to the end.
  static constexpr bool saturates = family == Family::paired && traits_of<Mod>.saturates && traits_of<Mod>.adds_entry;

  const DeviceCall<float>& call;
  const ThreadRows at;
  const int key_head;
  const StagePlace<D> place;
  const StagedOperands<D, gated> keys;
  std::uint16_t* const buffers;  // two
  float* const scratch;          // the warp's rows of a tile of pairs
  SoftmaxRows<float, family, true> softmax;
  Fragment queries[product_steps<D>], gate_queries[product_steps<D>];  // the second if gated
  float o[2][width_columns<D>] = {};
  RunningSum<float> sums[2];
  float last_entries[2] = {};  // of the rows' tables, if the block is saturated

  __device__ ForwardBlock(const DeviceCall<float>& own, int first_row, std::uint16_t* memory)
      : call(own),
        at(call, first_row),
        key_head(at.head / call.gqa_group_size),
        keys(call, call.k, call.v, call.score_mod.gate_key, at.batch, key_head, place),
        buffers(memory),
        scratch(reinterpret_cast<float*>(memory + 2 * buffer_elements) + at.warp * warp_rows * pair_ld),
        softmax(call, at) {}

  __device__ void run(int first_row) {
    const int row_count = call.queries - first_row < stage_rows ? call.queries - first_row : stage_rows;
    const int first_query = at.before + first_row, last_query = first_query + row_count - 1;
    const StageOrder order(call, first_query, last_query, has_plain_stages<family, Mod>(call));
    keys.template stage<false>(place, buffers, order.last * stage_rows, last_query + 1 - order.last * stage_rows);
    load_queries(first_row, row_count);

    std::uint16_t* buffer = buffers;
    int stage = order.last;
    // Copies the next tiles during the products with these, which the whole block has.
    const auto take = [&]<Loop loop>() {
      const int next = order.after(stage);
      std::uint16_t* const other = buffers + (buffer == buffers ? buffer_elements : 0);
      if (next >= 0) keys.template stage<true>(place, other, next * stage_rows, stage_rows);
      if (at.first < at.queries) take_stage<loop>(buffer, stage * stage_rows);
      buffer = other;
      stage = next;
    };
    while (stage >= 0) {
      if constexpr (has_score_mod<Mod>) {
        bool saturated = false;
        while (!saturated && order.is_plain(stage)) {
          detail::wait_for_copies();
          saturated = __syncthreads_and(is_saturated());
          if (!saturated) take.template operator()<Loop::scanning>();
        }
        if (saturated) load_last_entries();
      }
      if constexpr (!has_score_mod<Mod> || saturates) {
        while (order.is_plain(stage)) {
          detail::wait_for_copies();
          __syncthreads();
          take.template operator()<Loop::plain>();
        }
      }
      if (stage < 0) break;
      detail::wait_for_copies();
      __syncthreads();
      take.template operator()<Loop::masked>();
    }
    softmax.template finish<D>(at, o, 0, sums);
  }

 private:
  // Through the second buffer.
  __device__ void load_queries(int first_row, int row_count) {
    std::uint16_t* const other = buffers + buffer_elements;
    const auto stage = [&](const Rows<float>& x, int width, std::uint16_t* to) {
      StagedRows<D>(x, at.batch, at.head, width, place).template stage<false>(place, to, first_row, row_count);
    };
    stage(call.q, call.width, other);
    if constexpr (gated) stage(call.score_mod.gate_query, call.gate_width, other + stage_elements<D>);
    detail::wait_for_copies();
    __syncthreads();
    load_rows<D>(queries, other, at.warp * warp_rows, call.scale);
    if constexpr (gated) {
      load_rows<D>(gate_queries, other + stage_elements<D>, at.warp * warp_rows, call.scale);
    }
  }

  // Whether all positions of this thread's rows are beyond the table.
  __device__ bool is_saturated() const {
    const auto last = static_cast<float>(call.entries - 1);
    return saturates && (!at.valid(0) || sums[0].value() >= last) && (!at.valid(1) || sums[1].value() >= last);
  }
  __device__ void load_last_entries() {
    TALLY_UNROLL
    for (int r = 0; r < 2; ++r) {
      sums[r].settle();
      const Rows<float> table = call.score_mod.table.head(at.batch, at.head);
      if (at.valid(r)) last_entries[r] = table.at(at.row(r), call.entries - 1);
    }
  }

  // For both tiles of a stage.
  __device__ void save_last_sums(int key_tile) const {
    TALLY_UNROLL
    for (int r = 0; r < 2; ++r) {
      if (call.scan_checkpoints == nullptr || !at.leads() || !at.valid(r)) continue;
      float* const own = call.scan_checkpoints + at.index(call, r) * call.tiles() + key_tile;
      own[0] = own[1] = sums[r].sum;
    }
  }

  template <Loop loop>
  __device__ void take_stage(const std::uint16_t* buffer, int first_key) {
    if constexpr (loop == Loop::plain) {
      float scores[2][plain_columns] = {};
      multiply_keys<D>(scores, queries, buffer, 0);
      if constexpr (saturates) save_last_sums(first_key / tile);
      softmax.template weigh<family != Family::ruled>(
          scores, o, [](int, int) { return true; }, last_entries);
      multiply_values<D>(o, scores, buffer + stage_elements<D>, 0);
    } else {
      TALLY_ROLLED
      for (int first = stage_rows - tile; first >= 0; first -= tile) {
        if (loop != Loop::masked || at.warp_sees(first_key + first)) take_tile<loop>(buffer, first, first_key + first);
      }
    }
  }

  template <Loop loop>
  __device__ void take_tile(const std::uint16_t* buffer, int first, int first_key) {
    constexpr bool masked = loop == Loop::masked;
    Pairs<float, family, Mod, true, !masked> pairs(call, at, first_key);
    float gate_scores[2][columns] = {};
    multiply_keys<D>(pairs.logits, queries, buffer, first);
    if constexpr (gated) {
      multiply_keys<D>(gate_scores, gate_queries, buffer + 2 * stage_elements<D>, first);
    } else {
      copy_pairs(gate_scores, pairs.logits);
    }
    if constexpr (traits_of<Mod>.sums) save_sums(call, at, first_key / tile, sums);
    pairs.finish(call, at, first_key, gate_scores, sums, scratch);
    constexpr bool exponential = family == Family::plain || !masked;
    softmax.template weigh<exponential>(pairs.logits, o, [&](int r, int c) { return pairs.attends(r, c); });
    if (masked && call.drop_below > 0) {
      store_pairs(scratch, pairs.logits);
      __syncwarp();
      each_dropped(call, at, first_key, scratch, [](float& weight, float factor) { weight *= factor; });
      __syncwarp();
      each_pair([&](int r, int c) { pairs.logits[r][c] = own_pair(scratch, r, c); });
    }
    multiply_values<D>(o, pairs.logits, buffer + stage_elements<D>, first);
  }
};

template <int D, Family family>
[[maybe_unused]] inline constexpr int bf16_blocks_at_once = family == Family::plain&& D <= 64 ? 3 : 2;

template <int D, Family family, class Mod>
__global__ void __launch_bounds__(stage_threads, bf16_blocks_at_once<D, family>)
    attention_forward_bf16(const __grid_constant__ DeviceCall<float> call) {
#if defined(TALLY_TENSOR_CORES)
  SHARED_DYNAMIC(std::uint16_t, memory);
  // The last rows have the most keys, so their blocks start first.
  const int first_row = static_cast<int>(gridDim.y - 1 - blockIdx.y) * stage_rows;
  ForwardBlock<D, family, Mod>(call, first_row, memory).run(first_row);
#endif
}

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
