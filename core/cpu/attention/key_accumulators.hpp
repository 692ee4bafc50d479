// Gradients by key, accumulated by the chunks of one head of keys. Only for core/cpu/attention/worker.hpp.
#pragma once

#include <algorithm>
#include <type_traits>

#include "core/cpu/attention/partition.hpp"

namespace tally::cpu {

// A chunk's accumulators for one head of keys: the gradient's rows of every key operand, with widths rounded up to
// whole vectors, one operand after the other in memory. Null if the call has no such operand.
template <class T>
struct KeyAccumulators : AttentionOperandsOf<T*> {
  std::int64_t count = 0;  // elements of all

  KeyAccumulators(const AttentionCall& call, T* memory) {
    const auto place = [&](const OperandRule& rule, T*& own, const View& x) {
      if (!rule.is_of_keys() || !x) return;
      if (memory != nullptr) own = memory + count;
      count += x.shape[2] * step(x);
    };
    for_each_operand(place, *this, call);
  }
  // Clears the sums that the rows of a chunk add to.
  void clear(const AttentionCall& call, const KeyRange& range) const {
    const auto clear_one = [&](const OperandRule& rule, T* const& own, const View& x) {
      if (own == nullptr) return;
      const KeyRange rows = belongs_to_keys(rule) ? range : KeyRange{0, x.shape[2]};
      std::fill_n(own + rows.begin * step(x), (rows.end - rows.begin) * step(x), T{0});
    };
    for_each_operand(clear_one, *this, call);
  }
  // Whether the operand has a row for each key. If not, every chunk may add to all rows.
  static bool belongs_to_keys(const OperandRule& rule) { return rule.shape[2] == 'K'; }

 private:
  // Step between two rows of an operand's sums.
  static std::int64_t step(const View& x) { return round_up(x.shape[3], vector_lanes<T>); }
};

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
