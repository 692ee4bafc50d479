// Matmuls of a tile of pairs with bf16 operands of its keys and rows (core/cpu/attention/products.hpp), by the
// microkernels of core/cpu/matmul/microkernel.hpp. The tile is rounded while it is packed. Blocks are 32 keys by 32
// lanes, and pairs above the diagonal are multiplied as zeros.
#pragma once

#include <algorithm>

#include "core/cpu/attention/tile.hpp"
#include "core/cpu/matmul/microkernel.hpp"

namespace tally::cpu {

inline constexpr std::int64_t bf16_keys = 32;  // key tiles begin at multiples of it

// The packed operands of one thread.
class Bf16Operands {
 public:
  struct Uses {  // which of the functions below are called
    bool pairs = true, by_keys = true, by_rows = true;
  };
  // x [K, width], y [tile_rows, width].
  Bf16Operands(std::int64_t keys, std::int64_t width, const Uses& uses, Arena& arena,
               const Microkernel& tiles = bf16_microkernel())
      : tiles_(tiles),
        uses_(uses),
        width_(width),
        pairs_(tiles.depth(width)),
        ld_by_key_(tiles.depth(keys) + bf16_pairs),  // rows of a power of two fall on the same lines of a cache
        x_(arena.take<std::uint32_t>(uses.pairs ? rows_of_a(keys) * pairs_ : 0)),
        x_by_key_(arena.take<std::uint32_t>(uses.by_keys ? rows_of_a(width) * ld_by_key_ : 0)),
        y_(arena.take<std::uint32_t>(uses.pairs ? tile_rows * pairs_ : 0)),
        y_by_row_(arena.take<std::uint32_t>(uses.by_rows ? round_up(width, block) * row_pairs() : 0)),
        tile_(arena.take<std::uint32_t>(std::max(tile_keys / 2 * block, rows_of_a(block) * row_pairs()))) {}

  // `count` rows of x from key `first` on, ld apart.
  void pack_x(const float* x, std::int64_t ld, std::int64_t first, std::int64_t count) {
    pack_x_by(tiles_.pack, x, ld, first, count);
  }
  void pack_x(const Bfloat16* x, std::int64_t ld, std::int64_t first, std::int64_t count) {
    pack_x_by(tiles_.pack_bf16, x, ld, first, count);
  }
  // All rows of y, ld apart.
  void pack_y(const float* y, std::int64_t ld) {
    for (std::int64_t lane = 0; uses_.pairs && lane < tile_rows; lane += block) {
      tiles_.pack(y_ + lane * pairs_, block, false, {y + lane * ld, ld, 1}, block, width_, pairs_);
    }
    for (std::int64_t column = 0; uses_.by_rows && column < width_; column += block) {
      tiles_.pack(y_by_row_ + column * row_pairs(), block, false, {y + column, 1, ld}, std::min(block, width_ - column),
                  tile_rows, row_pairs());
    }
  }

  // tile[j][i] = x_j . y_i; 0 above the diagonal.
  void pair_products(const RowTile& rows, const KeyTile& keys, float* tile) const {
    for (std::int64_t j = 0; j < keys.keys; j += block) {
      const std::int64_t lane = first_block(rows, keys, j), count = std::min(block, keys.keys - j);
      multiply({pairs_, x_ + (keys.first + j) * pairs_, pairs_, y_ + lane * pairs_, block * pairs_,
                tile + j * tile_rows + lane, tile_rows, count, round_up(rows.lanes, block) - lane, false});
    }
    clear_above_diagonal(rows, keys, tile);
  }
  // y_i += sum_j tile[j][i] x_j with y by lanes, [width, tile_rows]. Sets the tile to 0 above the diagonal.
  void add_keys_to_lanes(const RowTile& rows, const KeyTile& keys, float* y, float* tile) const {
    clear_above_diagonal(rows, keys, tile);
    for (std::int64_t lane = 0; lane < rows.lanes; lane += block) {
      // Only the keys up to the block's last query.
      const std::int64_t count = std::min(keys.keys, rows.last_key + lane + block - keys.first);
      if (count <= 0) continue;
      const std::int64_t pairs = tiles_.depth(count);
      tiles_.pack(tile_, block, false, {tile + lane, 1, tile_rows}, std::min(block, rows.lanes - lane), count, pairs);
      multiply({pairs, x_by_key(keys.first), ld_by_key_, tile_, 0, y + lane, tile_rows, width_, block, true});
    }
  }
  // x_j += sum_i tile[j][i] y_i with rows ld apart, a multiple of whole vectors; x begins with the tile's first key.
  void add_rows_to_keys(const RowTile& rows, const KeyTile& keys, float* x, std::int64_t ld, float* tile) const {
    clear_above_diagonal(rows, keys, tile);
    for (std::int64_t j = 0; j < keys.keys; j += block) {
      const std::int64_t lane = first_block(rows, keys, j), count = std::min(block, keys.keys - j);
      const std::int64_t inner = tiles_.depth(rows.lanes - lane);
      tiles_.pack(tile_, row_pairs(), true, {tile + j * tile_rows + lane, tile_rows, 1}, count, rows.rows - lane,
                  inner);
      multiply({inner, tile_, row_pairs(), y_by_row_ + lane / 2 * block, block * row_pairs(), x + j * ld, ld, count, ld,
                true});
    }
  }

 private:
  static constexpr std::int64_t block = bf16_keys;  // keys or lanes
  static_assert(block == bf16_columns);
  static_assert(tile_rows % block == 0 && tile_keys % block == 0 && block % (2 * bf16_pairs) == 0);

  // c [m, n] (+)= a b; panels of b are panel_step apart.
  struct Product {
    std::int64_t pairs;
    const std::uint32_t* a;
    std::int64_t ld_a;
    const std::uint32_t* b;
    std::int64_t panel_step;
    float* c;
    std::int64_t ld_c, m, n;
    bool add;
  };
  void multiply(const Product& of) const {
    for (std::int64_t row = 0; row < of.m; row += tiles_.rows) {
      for (std::int64_t column = 0; column < of.n; column += block) {
        SumTile sums{.c = of.c + row * of.ld_c + column, .ld_c = of.ld_c, .add = of.add};
        sums.rows = std::min<std::int64_t>(tiles_.rows, of.m - row);
        sums.columns = std::min(block, of.n - column);
        tiles_.multiply(of.pairs, {of.a + row * of.ld_a, of.ld_a}, of.b + column / block * of.panel_step, sums);
      }
    }
  }
  template <class X>
  void pack_x_by(Pack<X> pack, const X* x, std::int64_t ld, std::int64_t first, std::int64_t count) {
    if (uses_.pairs) pack(x_ + first * pairs_, pairs_, true, {x, ld, 1}, count, width_, pairs_);
    if (uses_.by_keys) pack(x_by_key(first), ld_by_key_, true, {x, 1, ld}, width_, count, tiles_.depth(count));
  }
  std::uint32_t* x_by_key(std::int64_t key) const { return x_by_key_ + key / 2; }
  // Number of pairs of a row tile's rows.
  std::int64_t row_pairs() const { return tiles_.depth(tile_rows); }
  // The microkernel reads whole blocks of rows of a; the results of padding rows are ignored.
  static constexpr std::int64_t rows_of_a(std::int64_t rows) { return round_up(rows, 32) + 32; }
  // A multiple of `block`. No lane before it attends to the keys from j on.
  static std::int64_t first_block(const RowTile& rows, const KeyTile& keys, std::int64_t j) {
    return keys.first_lane(rows, j) / block * block;
  }
  static void clear_above_diagonal(const RowTile& rows, const KeyTile& keys, float* tile) {
    for (std::int64_t j = keys.keys - 1; j >= 0 && keys.first_lane(rows, j) > 0; --j) {
      std::fill_n(tile + j * tile_rows, keys.first_lane(rows, j), 0.0F);
    }
  }

  const Microkernel& tiles_;
  Uses uses_;
  std::int64_t width_, pairs_;  // number of pairs in a packed row of x or y
  std::int64_t ld_by_key_;
  std::uint32_t *x_, *x_by_key_;  // pairs of columns [K, pairs]; pairs of keys [width, ld_by_key]
  std::uint32_t *y_, *y_by_row_;  // panels of 32 lanes by pairs of columns; of 32 columns by pairs of rows
  std::uint32_t* tile_;           // by pairs of lanes, or of keys
};

}  // namespace tally::cpu
