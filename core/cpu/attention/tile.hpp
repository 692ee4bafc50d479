// Tiles of attention on the CPU. Everything of a tile is laid out keys by rows: element (j, i) at j * tile_rows + i, so
// that neighbouring rows (queries) sit in the vector lanes and a sum along the keys is a plain vector addition.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/attention/problem.hpp"
#include "core/cpu/matmul/microkernel_f32.hpp"
#include "core/cpu/parallel.hpp"
#include "core/device/workspace.hpp"
#include "core/math/inline.hpp"

namespace tally::cpu {

inline constexpr std::int64_t tile_rows = 64;
inline constexpr std::int64_t tile_keys = 128;

inline constexpr std::int64_t lane_step = 16;  // lanes are processed in multiples of this number

// Up to tile_rows neighbouring queries of one head.
struct RowTile {
  std::int64_t batch = 0, head = 0;
  std::int64_t first = 0;     // query of lane 0
  std::int64_t last_key = 0;  // last key that lane 0 attends to: its query's index
  std::int64_t rows = 0;      // number of valid lanes; padding lanes hold finite garbage that is never stored
  std::int64_t lanes = 0;     // rows rounded up to a multiple of lane_step
  AttentionMask mask;         // the attention mask

  std::int64_t last_query() const { return last_key + rows - 1; }
};

// The lanes begin .. end - 1.
struct Lanes {
  std::int32_t begin = 0, end = 0;
  TALLY_INLINE bool hold(std::int32_t lane) const {
    return static_cast<std::uint32_t>(lane - begin) < static_cast<std::uint32_t>(end - begin);
  }
};

// The keys first .. first + keys - 1 for a tile of rows.
struct KeyTile {
  std::int64_t first = 0, keys = 0;
  // The lanes whose queries attend to key j, counted from the tile's first.
  Lanes unmasked_lanes(const RowTile& rows, std::int64_t j) const {
    const auto lane = [&](std::int64_t query) { return std::clamp<std::int64_t>(query - rows.last_key, 0, tile_rows); };
    const std::int64_t key = first + j, begin = lane(key);
    const std::int64_t end = std::max(begin, lane(rows.mask.end(key)));
    return {static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end)};
  }
  // A multiple of lane_step. No lane before it attends to the keys from j on.
  TALLY_INLINE std::int64_t first_lane(const RowTile& rows, std::int64_t j) const {
    const std::int64_t after = first + j - rows.last_key, last = rows.lanes - 1;
    return (after < 0 ? 0 : after < last ? after : last) / lane_step * lane_step;
  }
  bool unmasked_for_any(const RowTile& rows) const {
    return rows.mask.attends_any(rows.last_key, rows.last_query(), first, first + keys - 1);
  }
  // Whether every row attends to every key.
  bool unmasked_for_all(const RowTile& rows) const {
    return rows.mask.attends_all(rows.last_key, rows.last_query(), first, first + keys - 1);
  }
};

// Matrix (batch, head) of a [B, H, N, width] view of any strides.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t row_step = 0, column_step = 0;

  Matrix() = default;
  Matrix(const View& x, std::int64_t batch, std::int64_t head)
      : data(x.as<T>() + batch * x.strides[0] + head * x.strides[1]),
        row_step(x.strides[2]),
        column_step(x.strides[3]) {}
  T& at(std::int64_t row, std::int64_t column) const { return data[row * row_step + column * column_step]; }
};

// Number of tiles of `size` that cover `count` rows or keys.
constexpr std::int64_t tiles_of(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

// Counts of computed and skipped tiles. Tests need them, because results are the same if a negligible tile is computed
// after all. Fully masked tiles are not counted.
struct TileCounts {
  std::int64_t computed = 0;
  std::int64_t saturated = 0;  // computed without gates and places, because every sum was already saturated
  std::int64_t skipped = 0;    // skipped, because all weights are negligible
};
// Counts the tiles of this thread's calls, forward and backward. Null: no counting.
extern thread_local TileCounts* counted_tiles;

}  // namespace tally::cpu
