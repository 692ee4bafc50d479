// WorkPartition of the work of fused attention into chunks. It depends only on shapes, so sums have the same order for
// any number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/attention/problem.hpp"
#include "core/cpu/attention/interfaces.hpp"

namespace tally::cpu {

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

}  // namespace tally::cpu
