// Fused attention backward by rows: 16 queries a warp, key tiles from left to right. Computes d_q and all other
// gradients of rows, and saves the running sum of d_position at the left edge of each key tile. Gradients that all rows
// share (numbers of heads, toeplitz biases) are written by row or block and added afterwards
// (cuda/attention/backward.cu).
#pragma once

#include <algorithm>
#include <iterator>

#include "cuda/attention/gradient.hpp"
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

// Gradient of the table: a lane takes one of the warp's rows and walks along its keys. Neighbouring keys usually have
// neighbouring places, so the gradients of two entries accumulate in registers until the place changes. saturated: all
// places are beyond the table.
template <class Mod, class T>
__device__ void add_to_table(const DeviceCall<T>& call, const ThreadRows& at, int first_key, bool saturated,
                             const T* d_entries, const T* places) {
  const int line = lane_of_warp();
  const int row = at.first + line, query = at.before + row;
  if (line >= warp_rows || row >= at.queries) return;
  const Rows<T> d_z = call.d.score_mod.table.head(at.batch, at.head);
  constexpr bool knots = traits_of<Mod>.knots;
  const int last = call.entries - 1, numbers = knots ? 2 * call.entries : call.entries;
  const auto add = [&](int n, T value) {
    if (n >= 0 && n < numbers) d_z.at(row, n) += value;
  };
  int low = -2;
  T at_low = 0, above = 0;
  for (int j = seen_of_tile(query, first_key) - 1; j >= 0; --j) {
    const auto own = table_index<Mod>(call, saturated ? static_cast<T>(last) : places[line * pair_ld + j], last);
    const int own_low = knots ? 2 * own.low : own.low;
    if (own_low != low) {
      const bool next = own_low == low + 1;
      add(low, at_low);
      if (!next) add(low + 1, above);
      at_low = next ? above : T{0};
      above = 0;
      low = own_low;
    }
    // The place of a masked pair may be invalid.
    const T d_entry = d_entries[line * pair_ld + j], high = d_entry == T{0} ? T{0} : own.w * d_entry;
    at_low += knots ? d_entry : d_entry - high;
    above += high;
  }
  add(low, at_low);
  add(low + 1, above);
}

// Sums of d_logits along rows; each lane takes one of the warp's rows.
template <class T>
__device__ void add_to_row_sums(const DeviceCall<T>& call, const ThreadRows& at, int first_key, const T* d_logits) {
  const int line = lane_of_warp(), row = at.first + line;
  if (line >= warp_rows || row >= at.queries) return;
  double sum = 0;
  for (int j = 0; j < seen_of_tile(at.before + row, first_key); ++j) {
    sum += static_cast<double>(d_logits[line * pair_ld + j]);
  }
  call.row_sums[at.index_of(call, row)] += sum;
}

// f(r, key, d_logit) for each unmasked pair of the thread's rows, one after the other.
template <class T, Family family, class Mod, class F>
__device__ void each_seen(int first_key, const Pairs<T, family, Mod>& pairs, T* d_logits, const F& f) {
  TALLY_ROLLED
  for (int n = 0; n < 2 * columns; ++n) {
    const int r = n / columns, c = n % columns;
    if (tile_column(c) <= of_row(r, pairs.last_seen[0], pairs.last_seen[1])) {
      f(r, first_key + tile_column(c), own_pair(d_logits, r, c));
    }
  }
}

// Adds x to the first or the second row of a thread. Registers cannot be indexed, hence no array.
template <class T>
__device__ void add_to_one(int r, T x, T& upper, T& lower) {
  upper += of_row(r, x, T{0});
  lower += of_row(r, T{0}, x);
}

// Gradients of biases whose parts are owned by rows.
template <class T, Family family, class Mod>
__device__ void add_to_biases(const DeviceCall<T>& call, const ThreadRows& at, int first_key,
                              const Pairs<T, family, Mod>& pairs, T* d_logits) {
  for (int n = 0; n < call.bias_count; ++n) {
    const DeviceBias<T>& bias = call.biases[n];
    if (!bias.is_by_row() || bias.d.values.data == nullptr) continue;
    const Rows<T> d = bias.d.values.head(at.batch, at.head);
    if (bias.kind == BiasOperands<View>::Kind::dense) {
      each_seen(first_key, pairs, d_logits, [&](int r, int key, T x) { d.at(at.row(r), key) = x; });
      continue;
    }
    // Row-toeplitz; with a cap all keys at its last distance or farther share the last entry.
    const int single = bias.width - (bias.cap ? 1 : 0);
    T upper = 0, lower = 0;
    each_seen(first_key, pairs, d_logits, [&](int r, int key, T x) {
      const int distance = at.query(r) - key;
      if (distance < single) {
        d.at(at.row(r), distance) = x;
      } else {
        add_to_one(r, x, upper, lower);
      }
    });
    upper = sum_of_row(upper);
    lower = sum_of_row(lower);
    if (!bias.cap || !at.leads()) continue;
    if (at.valid(0)) d.at(at.row(0), single) += upper;
    if (at.valid(1)) d.at(at.row(1), single) += lower;
  }
}

// Sums of a block's d_logits by distance: each thread takes a diagonal.
template <class T>
__device__ void add_by_distance(const DeviceCall<T>& call, const T* d_logits, int row_block, int first_key, int count) {
  const int rows = block_rows();
  const int first_row = row_block * rows, first_query = call.keys - call.queries + first_row;
  const int row_count = static_cast<int>(call.queries - first_row < rows ? call.queries - first_row : rows);
  for (int n = 0; n < call.bias_count; ++n) {
    if (call.biases[n].partial == nullptr) continue;
    double* const sums = call.biases[n].partial + (std::int64_t{blockIdx.x} * gridDim.y + row_block) * call.keys;
    for (int diagonal = static_cast<int>(threadIdx.x); diagonal < rows + tile - 1;
         diagonal += static_cast<int>(blockDim.x)) {
      const int shift = diagonal - (tile - 1);  // row of the block - key of the tile
      const int distance = first_query - first_key + shift;
      if (distance < 0 || distance >= call.keys) continue;
      double sum = 0;
      for (int j = 0; j < count; ++j) {
        const int line = j + shift;
        if (line >= 0 && line < row_count) sum += static_cast<double>(d_logits[line * pair_ld + j]);
      }
      sums[distance] += sum;
    }
  }
}

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
      gradients.store_d_scores(tiles.d_scores);
      if constexpr (family == Family::gated) store_pairs(tiles.d_gate_scores, gradients.d_gate_scores);
    }
    if (owns && call.keeps_logits) store_pairs(tiles.d_logits, gradients.d_logits);  // 0 if the warp's tile is masked
    if (owns && call.keeps_entries) store_pairs(tiles.d_entries, gradients.d_entries);
    __syncwarp();
    if (takes_part && owns && call.keeps_logits) {
      if (traits_of<Mod>.table && call.d.score_mod.table.data != nullptr) {
        const T* const d_entries = traits_of<Mod>.adds_entry ? tiles.d_logits : tiles.d_entries;
        add_to_table<Mod>(call, at, first, gradients.pairs.saturated, d_entries, tiles.places);
      }
      if (call.row_sums != nullptr) add_to_row_sums(call, at, first, tiles.d_logits);
      add_to_biases(call, at, first, gradients.pairs, tiles.d_logits);
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
  store_rows<D>(call.d.q, at, d_q, slice, call.width, scale);
  if constexpr (family == Family::gated)
    store_rows<D>(call.d.score_mod.gate_query, at, d_gate_q, slice, call.gate_width, scale);
  if (call.d.softmax_rule.rest.data != nullptr && owns) {
    const Rows<T> d_o = call.d_output.head(at.batch, at.head), d = call.d.softmax_rule.rest.head(at.batch, at.head);
    TALLY_UNROLL
    for (int r = 0; r < 2; ++r) {
      for (int c = lane_of_warp() % row_lanes; at.valid(r) && c < call.value_width; c += row_lanes) {
        d.at(at.row(r), c) = state.left[r] * d_o.at(at.row(r), c);
      }
    }
  }
  if (!owns) return;
  if constexpr (has_score_mod<Mod>) close_pair_sums<Mod>(call, at);
  for (int n = 0; n < call.bias_count; ++n) {
    const DeviceBias<T>& bias = call.biases[n];
    if (bias.kind != BiasKind::row_column || bias.d.values.data == nullptr) continue;
    const Rows<double> d_row = bias.d.values.as_double().head(at.batch, at.head);
    const int row = at.first + lane_of_warp();  // this lane computed the row's sum
    if (lane_of_warp() < warp_rows && row < at.queries) {
      d_row.at(row) = call.row_sums[at.index_of(call, row)];
    }
  }
}

// do.r and do.o - do.r of each row, and its part of the gradient of a sink: -(1 - sum_j a_ij) D_i.
template <class T>
__global__ void attention_row_gradients(const __grid_constant__ DeviceCall<T> call) {
  const ThreadRows at(call, static_cast<int>(blockIdx.y) * block_rows());
  const Rows<T> d_o = call.d_output.head(at.batch, at.head), o = call.output.head(at.batch, at.head);
  for (int r = 0; r < 2; ++r) {
    T of_output = 0, of_rest = 0;
    for (int c = lane_of_warp() % row_lanes; at.valid(r) && c < call.value_width; c += row_lanes) {
      const T d = d_o.at(at.row(r), c);
      of_output += d * o.at(at.row(r), c);
      if (call.softmax_rule.rest.data != nullptr)
        of_rest += d * call.softmax_rule.rest.head(at.batch, at.head).at(at.row(r), c);
    }
    of_output = sum_of_row(of_output);
    of_rest = sum_of_row(of_rest);
    if (!at.valid(r) || !at.leads()) continue;
    const std::int64_t row = at.index(call, r);
    const T d_row = of_output - of_rest;
    call.row_gradients[2 * row] = of_rest;
    call.row_gradients[2 * row + 1] = d_row;
    if (call.sink_parts == nullptr) continue;
    const T left = call.softmax_statistics[statistics_per_row * row + 2];
    call.sink_parts[row] = -static_cast<double>(left) * static_cast<double>(d_row);
  }
}

template <class Mod, class T>
void backward_rows(const AttentionCall& call, const DeviceCall<T>& device) {
  const std::int64_t heads = call.batch() * call.heads();
  const int warps = warps_for<T>(call.queries()), rows = warps * warp_rows;
  const auto threads = static_cast<unsigned>(32 * warps);
  launch(attention_row_gradients<T>, grid_of(heads, call.queries(), rows, 1), threads, 0, context().stream, device);
  const auto bytes = [&](auto width, auto family) {
    constexpr Family constant = decltype(family)::value;
    return sizeof(T) * static_cast<std::size_t>(product_elements<decltype(width)::value, most_rows<T>>(constant) +
                                                PairTiles<T, constant>::elements(device));
  };
  visit_form<Mod, true>(device, bytes, [&](auto precision, auto width, auto family, std::size_t shared) {
    constexpr int D = decltype(width)::value;
    constexpr Family constant = decltype(family)::value;
    const std::int64_t slices = std::max(parts_of<D>(device.width), parts_of<D>(device.gate_width));
    launch(attention_backward_rows<T, decltype(precision)::value, D, constant, Mod>,
           grid_of(heads, call.queries(), rows, slices), threads, shared, context().stream, device);
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
