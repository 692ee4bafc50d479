#include "core/cpu/attention/products.hpp"

#include <algorithm>

namespace tally::cpu {
namespace {

constexpr std::int64_t block = bf16_keys;  // keys or lanes
static_assert(block == bf16_columns);
static_assert(tile_rows % block == 0 && tile_keys % block == 0 && block % (2 * bf16_pairs) == 0);

// Number of pairs that `numbers` values are packed into.
constexpr std::int64_t pairs_of(std::int64_t numbers) { return round_up((numbers + 1) / 2, bf16_pairs); }

// The microkernel reads whole blocks of rows of a; the results of padding rows are ignored.
constexpr std::int64_t rows_of_a(std::int64_t rows) { return round_up(rows, 32) + 32; }

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
void multiply(const Microkernel& tiles, const Product& of) {
  for (std::int64_t row = 0; row < of.m; row += tiles.rows) {
    for (std::int64_t column = 0; column < of.n; column += bf16_columns) {
      float* const c = of.c + row * of.ld_c + column;
      SumTile sums{.c = c, .ld_c = of.ld_c, .add = of.add};
      sums.rows = std::min<std::int64_t>(tiles.rows, of.m - row);
      sums.columns = std::min<std::int64_t>(bf16_columns, of.n - column);
      tiles.multiply(of.pairs, {of.a + row * of.ld_a, of.ld_a}, of.b + column / bf16_columns * of.panel_step, sums);
    }
  }
}

// Lanes of whole blocks before this one see none of the keys from j on.
std::int64_t first_block(const RowTile& rows, const KeyTile& keys, std::int64_t j) {
  return keys.first_lane(rows, j) / block * block;
}

void clear_above_diagonal(const RowTile& rows, const KeyTile& keys, float* tile) {
  for (std::int64_t j = keys.keys - 1; j >= 0 && keys.first_lane(rows, j) > 0; --j) {
    std::fill_n(tile + j * tile_rows, keys.first_lane(rows, j), 0.0F);
  }
}

}  // namespace

Bf16Operands::Bf16Operands(std::int64_t keys, std::int64_t width, const Uses& uses, Arena& arena,
                           const Microkernel& tiles)
    : tiles_(tiles),
      uses_(uses),
      width_(width),
      pairs_(pairs_of(width)),
      ld_(pairs_),
      ld_by_key_(pairs_of(keys) + bf16_pairs),  // rows of a power of two fall on the same lines of a cache
      x_(arena.take<std::uint32_t>(uses.pairs ? rows_of_a(keys) * ld_ : 0)),
      x_by_key_(arena.take<std::uint32_t>(uses.by_keys ? rows_of_a(width) * ld_by_key_ : 0)),
      y_(arena.take<std::uint32_t>(uses.pairs ? tile_rows * pairs_ : 0)),
      y_by_row_(arena.take<std::uint32_t>(uses.by_rows ? round_up(width, block) * pairs_of(tile_rows) : 0)),
      tile_(arena.take<std::uint32_t>(std::max(tile_keys / 2 * block, rows_of_a(block) * pairs_of(tile_rows)))) {}

template <class X>
void Bf16Operands::pack_x_of(Pack<X> pack, const X* x, std::int64_t ld, std::int64_t first, std::int64_t count) {
  if (uses_.pairs) pack(x_ + first * ld_, ld_, true, {x, ld, 1}, count, width_, pairs_);
  if (uses_.by_keys) pack(x_by_key(first), ld_by_key_, true, {x, 1, ld}, width_, count, pairs_of(count));
}
void Bf16Operands::pack_x(const float* x, std::int64_t ld, std::int64_t first, std::int64_t count) {
  pack_x_of(tiles_.pack, x, ld, first, count);
}
void Bf16Operands::pack_x(const Bfloat16* x, std::int64_t ld, std::int64_t first, std::int64_t count) {
  pack_x_of(tiles_.pack_bf16, x, ld, first, count);
}

void Bf16Operands::pack_y(const float* y, std::int64_t ld) {
  for (std::int64_t lane = 0; uses_.pairs && lane < tile_rows; lane += block) {
    tiles_.pack(y_ + lane * pairs_, block, false, {y + lane * ld, ld, 1}, block, width_, pairs_);
  }
  constexpr std::int64_t pairs = pairs_of(tile_rows);
  for (std::int64_t column = 0; uses_.by_rows && column < width_; column += block) {
    tiles_.pack(y_by_row_ + column * pairs, block, false, {y + column, 1, ld}, std::min(block, width_ - column),
                tile_rows, pairs);
  }
}

void Bf16Operands::pair_products(const RowTile& rows, const KeyTile& keys, float* tile) const {
  for (std::int64_t j = 0; j < keys.keys; j += block) {
    const std::int64_t lane = first_block(rows, keys, j), count = std::min(block, keys.keys - j);
    multiply(tiles_, {pairs_, x_ + (keys.first + j) * ld_, ld_, y_ + lane * pairs_, block * pairs_,
                      tile + j * tile_rows + lane, tile_rows, count, round_up(rows.lanes, block) - lane, false});
  }
  clear_above_diagonal(rows, keys, tile);
}

void Bf16Operands::add_keys_to_lanes(const RowTile& rows, const KeyTile& keys, float* y, float* tile) const {
  clear_above_diagonal(rows, keys, tile);
  for (std::int64_t lane = 0; lane < rows.lanes; lane += block) {
    // Only the keys up to the block's last query.
    const std::int64_t count = std::min(keys.keys, rows.last_key + lane + block - keys.first), pairs = pairs_of(count);
    if (count <= 0) continue;
    tiles_.pack(tile_, block, false, {tile + lane, 1, tile_rows}, std::min(block, rows.lanes - lane), count, pairs);
    multiply(tiles_, {pairs, x_by_key(keys.first), ld_by_key_, tile_, 0, y + lane, tile_rows, width_, block, true});
  }
}

void Bf16Operands::add_rows_to_keys(const RowTile& rows, const KeyTile& keys, float* x, std::int64_t ld,
                                    float* tile) const {
  clear_above_diagonal(rows, keys, tile);
  constexpr std::int64_t pairs = pairs_of(tile_rows);
  for (std::int64_t j = 0; j < keys.keys; j += block) {
    const std::int64_t lane = first_block(rows, keys, j), count = std::min(block, keys.keys - j);
    const std::int64_t inner = pairs_of(rows.lanes - lane);
    tiles_.pack(tile_, pairs, true, {tile + j * tile_rows + lane, tile_rows, 1}, count, rows.rows - lane, inner);
    multiply(tiles_,
             {inner, tile_, pairs, y_by_row_ + lane / 2 * block, block * pairs, x + j * ld, ld, count, ld, true});
  }
}

}  // namespace tally::cpu
