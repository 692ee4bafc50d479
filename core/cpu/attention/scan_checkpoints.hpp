// Layout of the running sums that forward saves for backward, at the right edges of key tiles. Each row tile of each
// head saves its sums for every key tile that is not fully masked, except the last one, where sums begin at 0. Without
// a window that is half of all tiles; with one it is the tiles that the window touches.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cpu/attention/tile.hpp"

namespace tally::cpu {

inline std::int64_t key_tiles_before(std::int64_t keys) { return (keys + tile_keys - 1) / tile_keys; }

class ScanCheckpoints {
 public:
  explicit ScanCheckpoints(const AttentionCall& call) : call_(call) {}

  // The key tiles 0 .. always - 1 and begin .. end - 1 of a row tile. offset: the number of elements before its first.
  struct Checkpoint {
    std::int64_t always, begin, end, offset = 0;
    std::int64_t at(std::int64_t key_tile) const {
      return offset + (key_tile < always ? key_tile : always + key_tile - begin) * tile_rows;
    }
  };
  Checkpoint of(const RowTile& rows) const {
    const std::int64_t row_tile = rows.first / tile_rows, head = rows.batch * call_.heads() + rows.head;
    Checkpoint kept = kept_of(row_tile);
    kept.offset = head * of_head(row_tiles()) + of_head(row_tile);
    return kept;
  }
  // Number of elements, over all heads.
  std::int64_t count() const { return call_.batch() * call_.heads() * of_head(row_tiles()); }

 private:
  Checkpoint kept_of(std::int64_t row_tile) const {
    const std::int64_t first = row_tile * tile_rows, query = call_.keys() - call_.queries() + first;
    const std::int64_t rows = std::min(tile_rows, call_.queries() - first), begin = call_.mask.begin(query) / tile_keys;
    return {std::min(begin, key_tiles_before(std::min(call_.mask.first, call_.keys()))), begin,
            key_tiles_before(query + rows) - 1};
  }
  std::int64_t row_tiles() const { return (call_.queries() + tile_rows - 1) / tile_rows; }
  // Number of elements of a head's first row tiles.
  std::int64_t of_head(std::int64_t row_tiles) const {
    std::int64_t tiles = 0;
    for (std::int64_t n = 0; n < row_tiles; ++n) {
      const Checkpoint kept = kept_of(n);
      tiles += kept.always + kept.end - kept.begin;
    }
    return tiles * tile_rows;
  }

  const AttentionCall& call_;
};

}  // namespace tally::cpu
