// Gradients by key, accumulated by the chunks of one head of keys. Only for core/cpu/attention/worker.hpp.
#pragma once

#include <algorithm>
#include <type_traits>

#include "core/cpu/attention/partition.hpp"

namespace tally::cpu {

// A chunk's accumulators for one head of keys: the gradient's rows of every key operand, with widths rounded up to
// whole vectors, one operand after the other in memory. Null if the call has no such operand.
template <class T>
using KeyAccumulators = AttentionOperandsOf<T*>;

// Step between two rows of an operand's sums.
template <class T>
std::int64_t key_sum_step(const View& operand) {
  return round_up(operand.shape[3], vector_lanes<T>);
}
template <class T>
std::int64_t key_sum_count(const AttentionCall& call) {
  std::int64_t count = 0;
  for_each_key_operand([&](const View& x) { count += x ? x.shape[2] * key_sum_step<T>(x) : 0; }, call);
  return count;
}
// Whether the rows of this operand correspond to the keys. If not, every chunk may add to all rows.
template <class Operands>
bool belongs_to_keys(const Operands& all, const View& one, std::int64_t keys) {
  return &one != &all.distance.key && one.shape[2] == keys;
}
template <class T>
KeyAccumulators<T> key_accumulators(const AttentionCall& call, T* memory) {
  KeyAccumulators<T> sums;
  const auto place = [&](const View& x, T*& own) {
    if (!x) return;
    own = memory;
    memory += x.shape[2] * key_sum_step<T>(x);
  };
  for_each_key_operand(place, call, sums);
  return sums;
}
// Clears the sums that the rows of a chunk add to.
template <class T>
void clear_key_accumulators(const AttentionCall& call, const KeyAccumulators<T>& sums, const KeyRange& range) {
  const auto clear = [&](const View& x, T* const& own) {
    if (!x) return;
    const KeyRange rows = belongs_to_keys(call, x, call.keys()) ? range : KeyRange{0, x.shape[2]};
    const std::int64_t step = key_sum_step<T>(x);
    std::fill_n(own + rows.begin * step, (rows.end - rows.begin) * step, T{0});
  };
  for_each_key_operand(clear, call, sums);
}

// Writes the sums of `count` chunks of one head of keys, from chunk `part` on, to d [B, G, K or fewer, width]. The sums
// have rows of width rounded up to whole vectors and are `step` apart. All calls except the one with chunk 0 add to d.
// `whole`: every chunk has added to all rows. X: T, or bf16 if `count` includes all chunks.
template <class T, class X>
void write_key_sums(const AttentionCall& call, const View& d, std::int64_t batch, std::int64_t key_head, const T* sums,
                    std::int64_t step, std::int64_t part, std::int64_t count, bool whole) {
  constexpr std::int64_t most = 256;  // columns at a time
  alignas(64) T sum[most];
  const std::int64_t shares = divide(call).shares;
  const Matrix<X> target(d, batch, key_head);
  const std::int64_t width = d.shape[3], ld = round_up(width, vector_lanes<T>);
  if (whole && part == 0 && count == 1 && target.column_step == 1) {
    if constexpr (std::is_same_v<X, Bfloat16>) {
      write_rounded_rows(&target.at(0, 0), target.row_step, sums, ld, d.shape[2], width);
    } else {
      for (std::int64_t j = 0; j < d.shape[2]; ++j) std::copy_n(sums + j * ld, width, &target.at(j, 0));
    }
    return;
  }
  for (std::int64_t j = 0; j < d.shape[2]; ++j) {
    for (std::int64_t first = 0; first < width; first += most) {
      const std::int64_t columns = std::min(most, width - first);
      X* const written = &target.at(j, first);
      bool begun = part > 0;
      for (std::int64_t c = 0; begun && c < columns; ++c) sum[c] = static_cast<T>(written[c * target.column_step]);
      for (std::int64_t n = 0; n < count; ++n) {
        if (!whole && !keys_of(call, (part + n) % shares, shares).holds(j)) continue;
        const T* const row = sums + j * ld + first + n * step;
        if (begun) {
          for (std::int64_t c = 0; c < columns; ++c) sum[c] += row[c];
        } else {
          std::copy_n(row, columns, sum);
        }
        begun = true;
      }
      if (!begun) std::fill_n(sum, columns, T{0});
      for (std::int64_t c = 0; c < columns; ++c) written[c * target.column_step] = static_cast<X>(sum[c]);
    }
  }
}

}  // namespace tally::cpu
