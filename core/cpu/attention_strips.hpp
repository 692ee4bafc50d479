// Products of a tile of pairs with its rows or keys, without the pairs above the diagonal. All tiles are [tile_keys,
// tile_rows]; matrices of keys begin with the tile's first key.
#pragma once

#include <algorithm>

#include "core/cpu/attention_tile.hpp"

namespace tally::cpu {

// Neighbouring keys of a tile, and the first lane that multiplies them: a multiple of lane_step, before which no lane
// sees any of them.
struct Strip {
  std::int64_t key, keys, lane;
};

template <class F>
void for_each_strip(const RowTile& rows, const KeyTile& keys, F&& f) {
  for (std::int64_t j = 0; j < keys.keys;) {
    const std::int64_t lane = keys.first_lane(rows, j);
    const std::int64_t end = std::min(keys.keys, rows.last_key - keys.first + lane + lane_step);
    f(Strip{j, end - j, lane});
    j = end;
  }
}

// tile[j][i] = x_j . y_i with x [keys, width] and y by lanes, [width, tile_rows]; 0 above the diagonal.
template <class T>
void pair_products(const RowTile& rows, const KeyTile& keys, T* tile, const T* x, const T* y, std::int64_t width) {
  for_each_strip(rows, keys, [&](const Strip& strip) {
    T* const first = tile + strip.key * tile_rows;
    for (std::int64_t j = 0; j < strip.keys; ++j) std::fill_n(first + j * tile_rows, strip.lane, T{0});
    lane_product(first + strip.lane, tile_rows, x + strip.key * width, width, 1, y + strip.lane, tile_rows, strip.keys,
                 rows.lanes - strip.lane, width, false);
  });
}

// y_i += sum_j tile[j][i] x_j with y by lanes.
template <class T>
void add_keys_to_lanes(const RowTile& rows, const KeyTile& keys, T* y, const T* tile, const T* x, std::int64_t width) {
  for_each_strip(rows, keys, [&](const Strip& strip) {
    lane_product(y + strip.lane, tile_rows, x + strip.key * width, 1, width, tile + strip.key * tile_rows + strip.lane,
                 tile_rows, width, rows.lanes - strip.lane, strip.keys, true);
  });
}

// x_j += sum_i tile[j][i] y_i with rows of x and y ld apart, a multiple of whole vectors.
template <class T>
void add_rows_to_keys(const RowTile& rows, const KeyTile& keys, T* x, const T* tile, const T* y, std::int64_t ld) {
  for_each_strip(rows, keys, [&](const Strip& strip) {
    lane_product(x + strip.key * ld, ld, tile + strip.key * tile_rows + strip.lane, tile_rows, 1, y + strip.lane * ld,
                 ld, strip.keys, ld, rows.rows - strip.lane, true);
  });
}

}  // namespace tally::cpu
