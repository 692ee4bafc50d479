// Gradients of tables, biases and other operands whose parts rows own, from a warp's tile of pairs in shared memory.
#pragma once

#include "cuda/attention/gradient.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

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
template <class T, class PairsOf, class F>
__device__ void each_seen(int first_key, const PairsOf& pairs, T* d_logits, const F& f) {
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
template <class T, class PairsOf>
__device__ void add_to_biases(const DeviceCall<T>& call, const ThreadRows& at, int first_key, const PairsOf& pairs,
                              T* d_logits) {
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

// Adds a tile's part of the gradients that rows own, except d_q. d_logits, d_entries and places: the warp's rows of
// tiles in shared memory; d_entries of a table whose entry is a term of the logit are d_logits.
template <class Mod, class T, class PairsOf>
__device__ void add_to_rows(const DeviceCall<T>& call, const ThreadRows& at, int first_key, const PairsOf& pairs,
                            T* d_logits, const T* d_entries, const T* places) {
  if (traits_of<Mod>.table && call.d.score_mod.table.data != nullptr) {
    add_to_table<Mod>(call, at, first_key, pairs.saturated, traits_of<Mod>.adds_entry ? d_logits : d_entries, places);
  }
  if (call.row_sums != nullptr) add_to_row_sums(call, at, first_key, d_logits);
  add_to_biases(call, at, first_key, pairs, d_logits);
}

// The gradients of rows after their last key.
template <class Mod, class T>
__device__ void finish_rows(const DeviceCall<T>& call, const ThreadRows& at) {
  if (call.d.softmax_rule.rest.data != nullptr) {
    const Rows<T> d_o = call.d_output.head(at.batch, at.head), d = call.d.softmax_rule.rest.head(at.batch, at.head);
    for (int r = 0; r < 2; ++r) {
      if (!at.valid(r)) continue;
      const T left = call.softmax_statistics[statistics_per_row * at.index(call, r) + 2];
      for (int c = lane_of_warp() % row_lanes; c < call.value_width; c += row_lanes) {
        d.at(at.row(r), c) = left * d_o.at(at.row(r), c);
      }
    }
  }
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

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
