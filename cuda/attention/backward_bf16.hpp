// Fused attention backward with bf16 operands, common part of the kernels by rows and by keys: stages of 64 rows and 64
// keys, as in the forward kernel (cuda/attention/stage.hpp).
#pragma once

#include "cuda/attention/gradient.hpp"
#include "cuda/attention/operands.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

// Whether a stage without masks is a plain one once the positions of its rows are all beyond the table. Then a row adds
// a constant to its scores, and only the table's last entry gets a gradient.
template <Family family, class Mod>
inline constexpr bool skips_saturated =
    family == Family::paired&& traits_of<Mod>.saturates&& traits_of<Mod>.adds_entry&& scalar_count<Mod> == 0;

// The saved running sums at the right edge of a stage of keys are beyond the table, for the rows of this thread.
__device__ inline bool is_saturated(const DeviceCall<float>& call, const ThreadRows& at, int key_stage) {
  const auto last = static_cast<float>(call.entries - 1);
  const int key_tile = (key_stage + 1) * (stage_rows / tile) - 1;
  bool saturated = true;
  TALLY_UNROLL
  for (int r = 0; r < 2; ++r) {
    if (at.valid(r)) saturated &= call.scan_checkpoints[at.index(call, r) * call.tiles() + key_tile] >= last;
  }
  return saturated;
}

// Waits for the copies of a stage, and returns the loop that takes it. By all threads of the block. whole: all rows
// attend to all keys, and the call has plain stages.
template <Family family, class Mod>
__device__ Loop begin_stage(const DeviceCall<float>& call, const ThreadRows& at, int key_stage, bool whole) {
  detail::wait_for_copies();
  if constexpr (skips_saturated<family, Mod>) {
    if (__syncthreads_and(whole && is_saturated(call, at, key_stage))) return Loop::plain;
  } else {
    __syncthreads();
  }
  return !whole ? Loop::masked : has_score_mod<Mod> ? Loop::scanning : Loop::plain;
}

// The gradients of a tile of pairs. In plain stages nothing of a score modification is left except the last entry of
// each row's table, which RowState::m includes.
template <Family family, class Mod, Loop loop>
using StagedGradients = std::conditional_t<loop == Loop::plain && has_score_mod<Mod>,
                                           PairGradients<float, Family::plain, NoScoreMod, true, true>,
                                           PairGradients<float, family, Mod, true, loop != Loop::masked>>;

// A row's entry at the table's end; 0 beyond the last row.
__device__ inline float last_entry(const DeviceCall<float>& call, const ThreadRows& at, int r) {
  const Rows<float> table = call.score_mod.table.head(at.batch, at.head);
  return at.valid(r) ? table.at(at.row(r), call.entries - 1) : 0;
}

// The products of a tile of pairs. rows and keys: staged operands. first: the tile's keys among those staged.
template <int D, bool gated, class Gradients>
__device__ void multiply_scores(Gradients& gradients, const std::uint16_t* rows, const ThreadRows& at,
                                const std::uint16_t* keys, int first) {
  const int own = at.warp * warp_rows;
  multiply_keys<D>(gradients.pairs.logits, SharedRows<D>(rows, own), keys, first);
  if constexpr (gated) {
    constexpr int gates = 2 * stage_elements<D>;
    multiply_keys<D>(gradients.d_gate_scores, SharedRows<D>(rows + gates, own), keys + gates, first);
  } else {
    copy_pairs(gradients.d_gate_scores, gradients.pairs.logits);
  }
}
template <int D, class Gradients>
__device__ void multiply_d_weights(Gradients& gradients, const std::uint16_t* rows, const ThreadRows& at,
                                   const std::uint16_t* keys, int first) {
  multiply_keys<D>(gradients.d_logits, SharedRows<D>(rows + stage_elements<D>, at.warp * warp_rows),
                   keys + stage_elements<D>, first);
}

// Number of blocks on a multiprocessor, which limits their registers.
template <int D, Family family>
[[maybe_unused]] inline constexpr int backward_blocks_at_once = D <= 64 && family == Family::plain ? 3 : 2;

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
