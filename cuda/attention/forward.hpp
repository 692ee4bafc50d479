// Fused attention forward (layout: cuda/attention/tile.hpp). A warp has 16 queries of one head and takes key tiles from
// the diagonal to the left. For each tile it computes scores, applies the score modification and the biases, takes
// exponentials under the largest logit so far, and accumulates values.
//
// Traffic: each block reads the q, k and v it needs once: T/64 times k and v in all, mostly from the L2 cache. It
// writes o, three numbers a row, and with a score modification one number per row and key tile. Nothing has size T x T.
#pragma once

#include "cuda/attention/forward_bf16.hpp"
#include "cuda/attention/operands.hpp"
#include "cuda/runtime/context.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

// Number of elements of shared memory, which holds pairs, v, q and k, then the gates' operands.
template <class T, int D>
inline constexpr int forward_key_elements = tile* ld_of<D>;
template <class T, int D>
inline constexpr int forward_product_elements = most_rows<T>* ld_of<D> + forward_key_elements<T, D>;
template <class T, int D, Family family>
inline constexpr std::size_t forward_elements = most_rows<T>* pair_ld + forward_key_elements<T, D> +
                                                (family == Family::gated ? 2 : 1) * forward_product_elements<T, D>;

// Number of blocks on a multiprocessor, which limits their registers. With three, wide heads and other rules would
// spill registers. The largest shared memory also has room for three.
template <class T, int D, Family family>
[[maybe_unused]] inline constexpr int blocks_at_once = sizeof(T) > sizeof(float) ? 1
                                                       : family == Family::paired || family == Family::gated
                                                               || D > 64 || (D > 32 && family == Family::ruled)
                                                           ? 2
                                                           : 3;

template <class T, MatmulPrecision precision, int D, Family family, class Mod>
__global__ void __launch_bounds__(32 * most_warps<T>, blocks_at_once<T, D, family>)
    attention_forward(const __grid_constant__ DeviceCall<T> call) {
  constexpr int ld = ld_of<D>;
  SHARED_DYNAMIC(T, memory);
  const int rows = block_rows();
  // The last rows have the most keys, so their blocks start first.
  const int first_row = static_cast<int>(gridDim.y - 1 - blockIdx.y) * rows, slice = slice_of_block();
  const int row_count = static_cast<int>(call.queries - first_row < rows ? call.queries - first_row : rows);
  const ThreadRows at(call, first_row);
  const int seen_keys = at.before + first_row + row_count;

  T* const pair_tile = memory + at.warp * warp_rows * pair_ld;  // of this warp
  T* const v_tile = memory + most_rows<T> * pair_ld;
  T* const q_tile = v_tile + forward_key_elements<T, D>;
  T* const gate_tile = q_tile + forward_product_elements<T, D>;
  const int key_head = at.head / call.gqa_group_size;
  HeadProduct<T, D> score{
      call.q, call.k, at.batch, at.head, key_head, call.width, call.scale, q_tile, q_tile + most_rows<T> * ld};
  const ScoreModOperands<Rows<T>>& mod = call.score_mod;
  HeadProduct<T, D> gate{mod.gate_query, mod.gate_key, at.batch,
                         at.head,        key_head,     call.gate_width,
                         call.scale,     gate_tile,    gate_tile + most_rows<T> * ld};
  score.set_rows(first_row, row_count);
  if constexpr (family == Family::gated) gate.set_rows(first_row, row_count);

  SoftmaxRows<T, family> softmax(call, at);
  T o[2][width_columns<D>] = {};
  RunningSum<T> sums[2];
  for (int key_tile = (seen_keys + tile - 1) / tile - 1; key_tile >= 0; --key_tile) {
    const int first = key_tile * tile;
    const int count = static_cast<int>(seen_keys - first < tile ? seen_keys - first : tile);
    if (!at.block_sees(call, row_count, first, count)) continue;
    __syncthreads();  // all reads of the previous tile are done
    if (!score.whole()) score.load_rows(0);
    score.set_keys(first, count);
    if constexpr (family == Family::gated) {
      if (!gate.whole()) gate.load_rows(0);
      gate.set_keys(first, count);
    }
    load_tile<D>(v_tile, tile, call.v.head(at.batch, key_head), first, count, slice, call.value_width, T{1});
    __syncthreads();

    const bool takes_part = at.warp_sees(first);
    Pairs<T, family, Mod> pairs(call, at, first);
    T gate_scores[2][columns] = {};
    score.template multiply<precision>(pairs.logits, at.warp, takes_part);
    if constexpr (family == Family::gated) {
      gate.template multiply<precision>(gate_scores, at.warp, takes_part);
    } else {
      copy_pairs(gate_scores, pairs.logits);
    }
    if (!takes_part) continue;
    if constexpr (traits_of<Mod>.sums) save_sums(call, at, key_tile, sums);
    pairs.finish(call, at, first, gate_scores, sums, pair_tile);
    softmax.weigh(pairs.logits, o, [&](int r, int c) { return pairs.attends(r, c); });
    store_pairs(pair_tile, pairs.logits);
    if (call.drop_below > 0) {
      __syncwarp();
      each_dropped(call, at, first, pair_tile, [](T& weight, T factor) { weight *= factor; });
    }
    __syncwarp();
    multiply_tile<precision>(o, ByRow<T>{pair_tile, pair_ld}, ByColumn<T>{v_tile, ld}, tile);
  }

  softmax.template finish<D>(at, o, slice, sums);
}

// The kernel for operands in f32 and f64 at a precision of products, or that for bf16 operands.
template <class Mod = NoScoreMod>
void forward(const AttentionCall& call) {
  if constexpr (takes_bf16<Mod>) {
    if (call.q.dtype == DType::bf16) {
      const DeviceCall<float> device = device_call<float>(call);
      return visit_bf16_form<Mod, 128>(call, [&]<int D, Family family>() {
        const std::size_t scratch = device.bias_count > 0 || device.drop_below > 0 ? stage_rows * pair_ld : 0;
        const std::size_t buffers = 2 * ForwardBlock<D, family, Mod>::buffer_elements;
        launch(attention_forward_bf16<D, family, Mod>,
               grid_of(call.batch() * call.heads(), call.queries(), stage_rows, 1), stage_threads,
               buffers * sizeof(std::uint16_t) + scratch * sizeof(float), context().stream, device);
      });
    }
  }
  dispatch_floating(call.q.dtype, [&](auto zero) {
    using T = decltype(zero);
    const DeviceCall<T> device = device_call<T>(call);
    const auto bytes = [](auto width, auto family) {
      return sizeof(T) * forward_elements<T, decltype(width)::value, decltype(family)::value>;
    };
    visit_form<Mod>(device, bytes, [&](auto precision, auto width, auto family, std::size_t shared) {
      constexpr int D = decltype(width)::value;
      const int warps = warps_for<T>(call.queries()), rows = warps * warp_rows;
      launch(attention_forward<T, decltype(precision)::value, D, decltype(family)::value, Mod>,
             grid_of(call.batch() * call.heads(), call.queries(), rows, parts_of<D>(device.value_width)),
             static_cast<unsigned>(32 * warps), shared, context().stream, device);
    });
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
