// Partition of the work of fused attention into chunks, and the gradients by key that the chunks of one head of keys
// accumulate. It depends only on shapes, so sums have the same order for any number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/attention/problem.hpp"
#include "core/attention/score_mod_traits.hpp"
#include "core/cpu/attention/pack.hpp"

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
// A share of the row tiles of the heads first_head .. end_head - 1, which have the same keys: every shares-th tile, so
// that each share has rows with few keys and rows with many.
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
  const std::int64_t most_shares = std::max<std::int64_t>(1, tiles_of(call.queries(), tile_rows) / least_tiles);
  return {ranges, std::min(parts(wanted, ranges), most_shares)};
}

// Index of the running sums that forward saves for backward at the right edge of a key tile, [B, H, row tiles, key
// tiles, tile_rows].
inline std::int64_t checkpoint_at(const AttentionCall& call, std::int64_t head, std::int64_t row_tile,
                                  std::int64_t key_tile) {
  return ((head * tiles_of(call.queries(), tile_rows) + row_tile) * tiles_of(call.keys(), tile_keys) + key_tile) *
         tile_rows;
}

// Number of sums of a head for the gradient of an operand to which all rows of the head contribute: [H], [H, n] or
// [B, H, n]. 0 for other operands.
inline std::int64_t shared_count(const OperandRule& rule, const View& x) {
  if (!x || (rule.shape.front() != 'H' && rule.shape != "BHK")) return 0;
  return rule.shape.size() == 1 ? 1 : x.shape.back();
}

// Memory of these sums. Several chunks contribute to one, so each share of the row tiles of a head has separate
// doubles, which are added in a fixed order afterwards.
struct SharedSums {
  double* data = nullptr;
  std::int64_t step = 0;  // between chunks
  std::int64_t batches = 0, heads = 0, shares = 0;

  std::int64_t count() const { return step * batches * heads * shares; }
  double* at(std::int64_t batch, std::int64_t head, std::int64_t share) const {
    return data + ((batch * heads + head) * shares + share) * step;
  }
  // The sums of each operand in a share that begins at `own`. Null for operands without sums, or if `own` is null.
  static AttentionProblem<double*> by_operand(const AttentionProblem<View>& call, double* own) {
    const auto place = [&own](const OperandRule& rule, const View& x) -> double* {
      const std::int64_t count = shared_count(rule, x);
      return own != nullptr && count > 0 ? std::exchange(own, own + count) : nullptr;
    };
    return transformed<double*>(place, call);
  }
  // Writes the totals of an operand whose sums begin at `first` to its gradient.
  template <class T>
  void write(const View& d, std::int64_t first, std::int64_t count) const {
    const bool by_batch = d.shape.rank == 3;
    const int axis = by_batch ? 1 : 0;
    for (std::int64_t b = 0; b < (by_batch ? batches : 1); ++b) {
      for (std::int64_t head = 0; head < heads; ++head) {
        T* const row = d.as<T>() + (by_batch ? b * d.strides[0] : 0) + head * d.strides[axis];
        for (std::int64_t n = 0; n < count; ++n) {
          double sum = 0;
          for (std::int64_t batch = b; batch < (by_batch ? b + 1 : batches); ++batch) {
            for (std::int64_t share = 0; share < shares; ++share) sum += at(batch, head, share)[first + n];
          }
          row[n * d.strides[axis + 1]] = static_cast<T>(sum);
        }
      }
    }
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

 private:
  // Step between two rows of an operand's sums.
  static std::int64_t step(const View& x) { return round_up(x.shape[3], vector_lanes<T>); }
};

// Adds up the sums of `count` chunks of one head of keys, which are `step` apart, and writes them to d [B, G, K or
// fewer, width]. The sums have rows of width rounded up to whole vectors. d may be bf16 with contiguous columns.
template <class T>
void write_key_sums(const View& d, std::int64_t batch, std::int64_t key_head, T* sums, std::int64_t step,
                    std::int64_t count) {
  const std::int64_t rows = d.shape[2], width = d.shape[3], ld = round_up(width, vector_lanes<T>);
  for (std::int64_t n = 1; n < count; ++n) {
    for (std::int64_t i = 0; i < rows * ld; ++i) sums[i] += sums[n * step + i];
  }
  if (d.dtype == DType::bf16) {
    const Matrix<Bfloat16> target(d, batch, key_head);
    return write_rounded_rows(target.data, target.row_step, sums, ld, rows, width);
  }
  const Matrix<T> target(d, batch, key_head);
  for (std::int64_t j = 0; j < rows; ++j) {
    for (std::int64_t c = 0; c < width; ++c) target.at(j, c) = sums[j * ld + c];
  }
}

}  // namespace tally::cpu
