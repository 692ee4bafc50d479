// The products of products.hpp with bf16 operands (core/cpu/matmul/microkernel.hpp): x of the keys and y of the
// rows. The tile that is multiplied with either is rounded while it is packed. Blocks are 32 keys by 32 lanes, and
// pairs above the diagonal are multiplied as zeros.
#pragma once

#include "core/cpu/attention/tile.hpp"
#include "core/cpu/matmul/microkernel.hpp"

namespace tally::cpu {

inline constexpr std::int64_t bf16_keys = 32;  // key tiles begin at multiples of it

// The packed operands of one thread.
class Bf16Operands {
 public:
  // Which of the products below are computed.
  struct Uses {
    bool pairs = true, by_keys = true, by_rows = true;
  };
  // x [K, width], y [tile_rows, width].
  Bf16Operands(std::int64_t keys, std::int64_t width, const Uses& uses, Arena& arena,
               const Microkernel& tiles = bf16_microkernel());

  // `count` rows of x from key `first` on, ld apart.
  void pack_x(const float* x, std::int64_t ld, std::int64_t first, std::int64_t count);
  void pack_x(const Bfloat16* x, std::int64_t ld, std::int64_t first, std::int64_t count);
  // All rows of y, ld apart.
  void pack_y(const float* y, std::int64_t ld);

  // tile[j][i] = x_j . y_i; 0 above the diagonal.
  void pair_products(const RowTile& rows, const KeyTile& keys, float* tile) const;
  // y_i += sum_j tile[j][i] x_j with y by lanes, [width, tile_rows]. Sets the tile to 0 above the diagonal.
  void add_keys_to_lanes(const RowTile& rows, const KeyTile& keys, float* y, float* tile) const;
  // x_j += sum_i tile[j][i] y_i with rows ld apart, a multiple of whole vectors; x begins with the tile's first key.
  void add_rows_to_keys(const RowTile& rows, const KeyTile& keys, float* x, std::int64_t ld, float* tile) const;

 private:
  template <class X>
  void pack_x_of(Pack<X> pack, const X* x, std::int64_t ld, std::int64_t first, std::int64_t count);
  std::uint32_t* x_by_key(std::int64_t key) const { return x_by_key_ + key / 2; }

  const Microkernel& tiles_;
  Uses uses_;
  std::int64_t width_, pairs_;    // number of pairs in a packed row of x or y
  std::int64_t ld_, ld_by_key_;   // of x_, x_by_key_
  std::uint32_t *x_, *x_by_key_;  // pairs of columns [K, ld]; pairs of keys [width, ld_by_key]
  std::uint32_t *y_, *y_by_row_;  // panels of 32 lanes by pairs of columns; of 32 columns by pairs of rows
  std::uint32_t* tile_;           // by pairs of lanes, or of keys
};

}  // namespace tally::cpu
