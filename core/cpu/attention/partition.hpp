// Partition of the work of fused attention into chunks, and the gradients by key that the chunks of one head of keys
// accumulate. It depends only on shapes, so sums have the same order for any number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/attention/problem.hpp"
#include "core/attention/score_mod_traits.hpp"
#include "core/cpu/attention/tile.hpp"

namespace tally::cpu {

// A tile is skipped if all its weights are known beforehand to be below e^-this times their row's sum.
template <class T>
inline constexpr T negligible_exponent = sizeof(T) == sizeof(float) ? T{20} : T{40};
// False with TALLY_SKIP_TILES=0 in the environment, to measure the cost of computing all tiles.
bool skips_tiles();

// Whether the running sum is the spent mass of the rule exp (stick-breaking): the leftover mass is e^-sum.
inline bool spends(const AttentionCall& call) {
  return call.softmax_rule.kind == SoftmaxRuleOperands<View>::Kind::exp && call.score_mod.mod != nullptr &&
         call.score_mod.mod->traits.sums;
}
// A share of the row tiles of the heads first_head .. end_head - 1, which have the same keys.
struct WorkItem {
  std::int64_t batch, key_head, first_head, end_head, share;
};

// Number of chunks for one head of keys: ranges of the query heads that share it, times shares of their row tiles.
// With many heads of keys it is one chunk, so that each head is packed once.
struct WorkPartition {
  std::int64_t ranges, shares;
  std::int64_t chunks() const { return ranges * shares; }
};
inline WorkPartition divide(const AttentionCall& call) {
  constexpr std::int64_t work_items = 16, least_tiles = 4;
  const auto parts = [](std::int64_t count, std::int64_t each) { return (count + each - 1) / each; };
  const std::int64_t wanted = parts(work_items, call.batch() * key_heads(call));
  const std::int64_t ranges = std::min(wanted, gqa_group_size(call));
  const std::int64_t most_shares = std::max<std::int64_t>(1, parts(call.queries(), tile_rows) / least_tiles);
  return {ranges, std::min(parts(wanted, ranges), most_shares)};
}

// Whether a share has neighbouring row tiles. In windows that are small compared with the text these use few keys.
inline bool shares_neighbours(const AttentionCall& call) {
  const AttentionMask& mask = call.mask;
  const std::int64_t least = std::max<std::int64_t>(1, call.keys() / 4);
  const bool small = (mask.window > 0 && mask.window <= least) || (mask.chunk > 0 && mask.chunk <= least);
  return small && mask.first == 0;
}

// first, first + step, ... below end.
struct RowTiles {
  std::int64_t first, end, step;
};
// If not neighbouring, a share has every shares-th tile: each has rows with few keys and rows with many.
inline RowTiles row_tiles_of(const AttentionCall& call, std::int64_t share, std::int64_t shares) {
  const std::int64_t tiles = (call.queries() + tile_rows - 1) / tile_rows;
  if (!shares_neighbours(call)) return {share, tiles, shares};
  return {share * tiles / shares, (share + 1) * tiles / shares, 1};
}

// The keys begin .. end - 1, in whole tiles, include every unmasked key of a share's rows.
struct KeyRange {
  std::int64_t begin, end;
  bool holds(std::int64_t key) const { return begin <= key && key < end; }
};
inline KeyRange keys_of(const AttentionCall& call, std::int64_t share, std::int64_t shares) {
  const std::int64_t keys = call.keys();
  if (!shares_neighbours(call)) return {0, keys};
  const RowTiles tiles = row_tiles_of(call, share, shares);
  const std::int64_t earlier = keys - call.queries();
  const std::int64_t end = std::min(keys, round_up(earlier + tiles.end * tile_rows, tile_keys));
  return {call.mask.begin(earlier + tiles.first * tile_rows) / tile_keys * tile_keys, end};
}

// Sums that several chunks contribute to: each share of the row tiles of one head has separate doubles, which are
// added in a fixed order afterwards.
struct SharedSums {
  double* data = nullptr;
  std::int64_t step = 0;  // between chunks
  std::int64_t batches = 0, heads = 0, shares = 0;

  double* at(std::int64_t batch, std::int64_t head, std::int64_t share) const {
    return data + ((batch * heads + head) * shares + share) * step;
  }
  // The total of number n of a head.
  double of_head(std::int64_t head, std::int64_t n = 0) const {
    double sum = 0;
    for (std::int64_t batch = 0; batch < batches; ++batch) {
      for (std::int64_t share = 0; share < shares; ++share) sum += at(batch, head, share)[n];
    }
    return sum;
  }
};

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
