// How the work of tiled attention is divided among threads: by shape alone, so that sums have the same order for any
// number of them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/attention/heads.hpp"
#include "core/cpu/attention_shapes.hpp"

namespace tally::cpu {

// Of the heads first_head .. end_head - 1, which have the same keys, a share of the row tiles: share, share + shares,
// ...
struct Chunk {
  std::int64_t batch, key_head, first_head, end_head, share;
};

// How many chunks the work with one head of keys is divided into: ranges of the heads that share it, and of each head
// shares of its row tiles, but where sums run down them. One where there are many heads of keys: each is packed once.
struct Division {
  std::int64_t ranges, shares;
  std::int64_t chunks() const { return ranges * shares; }
};
inline Division divide(const AttentionCall& call) {
  constexpr std::int64_t work_items = 16, least_tiles = 4;
  const auto parts = [](std::int64_t count, std::int64_t each) { return (count + each - 1) / each; };
  const std::int64_t wanted = parts(work_items, call.batch() * key_heads(call));
  const std::int64_t ranges = std::min(wanted, heads_of_key(call));
  const std::int64_t row_tiles = sums_down(call.scan) ? 1 : parts(call.queries(), tile_rows);
  const std::int64_t most_shares = std::max<std::int64_t>(1, row_tiles / least_tiles);
  return {ranges, std::min(parts(wanted, ranges), most_shares)};
}

}  // namespace tally::cpu
