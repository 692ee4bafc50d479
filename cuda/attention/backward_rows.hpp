// Fused attention backward by rows: 16 queries a warp, key tiles from left to right. Computes d_q and all other
// gradients of rows, and saves the running sum of d_position at the left edge of each key tile. Gradients that all rows
// share (numbers of heads, toeplitz biases) are written by row or block and added afterwards
// (cuda/attention/backward.cu).
#pragma once

#include <algorithm>
#include <iterator>

#include "cuda/attention/backward_rows_bf16.hpp"
#include "cuda/runtime/context.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

// Tiles of pairs in shared memory, [rows][pair_ld] each, after the operands of products. Only needed ones have memory,
// and a call that needs one also needs the earlier ones.
template <class T, Family family>
struct PairTiles {
  T *d_scores, *d_gate_scores, *d_logits, *places, *d_entries;

  static int elements(const DeviceCall<T>& call) {
    const bool kept[]{family == Family::gated, call.keeps_logits, call.keeps_places, call.keeps_entries};
    return static_cast<int>(1 + std::count(std::begin(kept), std::end(kept), true)) * size;
  }
  // The parts of the warp's rows.
  __device__ PairTiles(T* memory, int warp)
      : d_scores(memory + warp * warp_rows * pair_ld),
        d_gate_scores(d_scores + size),
        d_logits(d_scores + (family == Family::gated ? 2 : 1) * size),
        places(d_logits + size),
        d_entries(places + size) {}

 private:
  static constexpr int size = most_rows<T> * pair_ld;
};

template <class T, MatmulPrecision precision, int D, Family family, class Mod>
__global__ void __launch_bounds__(32 * most_warps<T>, 2)
    attention_backward_rows(const __grid_constant__ DeviceCall<T> call) {
  SHARED_DYNAMIC(T, memory);
  const int rows = block_rows();
  // The last rows have the most keys, so their blocks start first.
  const int row_block = static_cast<int>(gridDim.y - 1 - blockIdx.y), first_row = row_block * rows,
            slice = slice_of_block();
  const int row_count = static_cast<int>(call.queries - first_row < rows ? call.queries - first_row : rows);
  const ThreadRows at(call, first_row);
  const int seen_keys = at.before + first_row + row_count;
  const bool owns = slice == 0;  // only the first slice writes gradients of rows that have no slices

  using Products = BackwardProducts<T, precision, D, most_rows<T>>;
  Products products(call, at.batch, at.head, memory);
  const PairTiles<T, family> tiles(memory + product_elements<D, most_rows<T>>(family), at.warp);
  products.template each<family>([&](auto& product) { product.set_rows(first_row, row_count); });

  RowState<T> state(call, at);
  T d_q[2][width_columns<D>] = {}, d_gate_q[2][width_columns<D>] = {};
  for (int key_tile = 0; key_tile * tile < seen_keys; ++key_tile) {
    const int first = key_tile * tile;
    const int count = static_cast<int>(seen_keys - first < tile ? seen_keys - first : tile);
    if (!at.block_sees(call, row_count, first, count)) continue;
    __syncthreads();  // all reads of the previous tile are done
    products.template each<family>([&](auto& product) {
      if (!product.whole()) product.load_rows(0);
      product.set_keys(first, count);
    });
    __syncthreads();

    const bool takes_part = at.warp_sees(first);
    PairGradients<T, family, Mod> gradients(call, at, key_tile);
    gradients.multiply_scores(products, at.warp, takes_part);
    if (takes_part) gradients.make_weights(call, at, key_tile, state, tiles.d_scores);
    if (owns && call.keeps_places) {
      store_pairs(tiles.places, traits_of<Mod>.own_position ? gradients.pairs.places : gradients.pairs.positions);
    }
    gradients.multiply_values(products, at.warp, takes_part);
    if (takes_part) {
      TALLY_UNROLL
      for (int r = 0; r < 2; ++r) {
        if (traits_of<Mod>.sums && owns && at.valid(r) && at.leads()) {
          call.d_prefix_sums[at.index(call, r) * call.tiles() + key_tile] = state.run[r];
        }
      }
      gradients.finish(call, at, key_tile, state, tiles.d_scores, owns);
      store_pairs(tiles.d_scores, gradients.d_scores);
      if constexpr (family == Family::gated) store_pairs(tiles.d_gate_scores, gradients.d_gate_scores);
    }
    if (owns && call.keeps_logits) store_pairs(tiles.d_logits, gradients.d_logits);  // 0 if the warp's tile is masked
    if (owns && call.keeps_entries) store_pairs(tiles.d_entries, gradients.d_entries);
    __syncwarp();
    if (takes_part && owns && call.keeps_logits) {
      add_to_rows<Mod>(call, at, first, gradients.pairs, tiles.d_logits, tiles.d_entries, tiles.places);
    }

    const auto bring = [&](const HeadProduct<T, D>& product) {
      if (product.whole()) return;
      __syncthreads();
      product.load_keys(slice);
      __syncthreads();
    };
    constexpr bool to_scores = reaches_scores<family, Mod>();
    if constexpr (to_scores) bring(products.score);
    if constexpr (family == Family::gated) bring(products.gate);
    __syncwarp();
    if (takes_part) {
      if constexpr (to_scores) {
        multiply_tile<precision>(d_q, ByRow<T>{tiles.d_scores, pair_ld}, ByColumn<T>{products.score.key_tile, ld_of<D>},
                                 tile);
      }
      if constexpr (family == Family::gated) {
        multiply_tile<precision>(d_gate_q, ByRow<T>{tiles.d_gate_scores, pair_ld},
                                 ByColumn<T>{products.gate.key_tile, ld_of<D>}, tile);
      }
    }
    if (owns && call.by_distance) {
      __syncthreads();  // d_logits are complete
      add_by_distance(call, tiles.d_logits - at.warp * warp_rows * pair_ld, row_block, first, count);
    }
  }

  const T scale[2] = {call.scale, call.scale};
  store_rows<D>(call.d.q, call.is_bf16.d_q, at, d_q, slice, call.width, scale);
  if constexpr (family == Family::gated)
    store_rows<D>(call.d.score_mod.gate_query, false, at, d_gate_q, slice, call.gate_width, scale);
  if (owns) finish_rows<Mod>(call, at);
}

template <class Mod, class T>
void backward_rows(const AttentionCall& call, const DeviceCall<T>& device) {
  const std::int64_t heads = call.batch() * call.heads();
  const int warps = warps_for<T>(call.queries()), rows = warps * warp_rows;
  const auto threads = static_cast<unsigned>(32 * warps);
  if constexpr (takes_bf16<Mod> && std::is_same_v<T, float>) {
    if (call.q.dtype == DType::bf16) return backward_rows_bf16<Mod>(call, device);
  }
  const auto bytes = [&](auto width, auto family) {
    constexpr Family constant = decltype(family)::value;
    return sizeof(T) * static_cast<std::size_t>(product_elements<decltype(width)::value, most_rows<T>>(constant) +
                                                PairTiles<T, constant>::elements(device));
  };
  visit_form<Mod>(device, bytes, [&](auto precision, auto width, auto family, std::size_t shared) {
    constexpr int D = decltype(width)::value;
    constexpr Family constant = decltype(family)::value;
    const std::int64_t slices = std::max(parts_of<D>(device.width), parts_of<D>(device.gate_width));
    launch(attention_backward_rows<T, decltype(precision)::value, D, constant, Mod>,
           grid_of(heads, call.queries(), rows, slices), threads, shared, context().stream, device);
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
