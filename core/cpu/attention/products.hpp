// Matmuls of a tile of pairs with an operand of its keys, x [K, w], and one of its rows, y [T, w]: k and q, v and do,
// or the separate operands of gates. Operands of type T are multiplied directly. If x is stored in bf16, y and the tile
// are rounded to bf16, too. They are multiplied by the processor's bf16 instructions (Bf16Operands). Without such
// instructions they are multiplied as f32, which is faster than the portable bf16 microkernel.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/cpu/attention/bf16_products.hpp"
#include "core/cpu/attention/partition.hpp"
#include "core/cpu/matmul/microkernel_f32.hpp"

namespace tally::cpu {

// Products of a tile of pairs with its rows or keys, without the pairs above the diagonal. All tiles are [tile_keys,
// tile_rows]; matrices of keys begin with the tile's first key.

// Neighbouring keys of a tile, and the first lane that multiplies them: a multiple of lane_step, before which no lane
// attends to any of them.
struct CausalBand {
  std::int64_t key, keys, lane;
};

template <class F>
void for_each_causal_band(const RowTile& rows, const KeyTile& keys, F&& f) {
  for (std::int64_t j = 0; j < keys.keys;) {
    const std::int64_t lane = keys.first_lane(rows, j);
    const std::int64_t end = std::min(keys.keys, rows.last_key - keys.first + lane + lane_step);
    f(CausalBand{j, end - j, lane});
    j = end;
  }
}

// tile[j][i] = x_j . y_i with x [keys, width] and y by lanes, [width, tile_rows]; 0 above the diagonal.
template <class T>
void pair_products(const RowTile& rows, const KeyTile& keys, T* tile, const T* x, const T* y, std::int64_t width) {
  for_each_causal_band(rows, keys, [&](const CausalBand& band) {
    T* const first = tile + band.key * tile_rows;
    for (std::int64_t j = 0; j < band.keys; ++j) std::fill_n(first + j * tile_rows, band.lane, T{0});
    gemm_microkernel(first + band.lane, tile_rows, x + band.key * width, width, 1, y + band.lane, tile_rows, band.keys,
                     rows.lanes - band.lane, width, false);
  });
}

// y_i += sum_j tile[j][i] x_j with y by lanes.
template <class T>
void add_keys_to_lanes(const RowTile& rows, const KeyTile& keys, T* y, const T* tile, const T* x, std::int64_t width) {
  for_each_causal_band(rows, keys, [&](const CausalBand& band) {
    gemm_microkernel(y + band.lane, tile_rows, x + band.key * width, 1, width, tile + band.key * tile_rows + band.lane,
                     tile_rows, width, rows.lanes - band.lane, band.keys, true);
  });
}

// x_j += sum_i tile[j][i] y_i with rows of x and y ld apart, a multiple of whole vectors.
template <class T>
void add_rows_to_keys(const RowTile& rows, const KeyTile& keys, T* x, const T* tile, const T* y, std::int64_t ld) {
  for_each_causal_band(rows, keys, [&](const CausalBand& band) {
    gemm_microkernel(x + band.key * ld, ld, tile + band.key * tile_rows + band.lane, tile_rows, 1, y + band.lane * ld,
                     ld, band.keys, ld, rows.rows - band.lane, true);
  });
}

// Whether any of a call's tiles are multiplied as bf16. They then begin at multiples of bf16_keys.
inline bool multiplies_bf16(const AttentionCall& call) {
  const View& gates = call.score_mod.gate_key;
  return call.k.dtype == DType::bf16 || call.v.dtype == DType::bf16 || (gates && gates.dtype == DType::bf16);
}

// If false, bf16 operands are multiplied as f32.
inline bool has_bf16_instructions() { return &bf16_microkernel() != &bf16_portable; }

// The same rows without a mask, to multiply them with `count` vectors that are not keys.
inline RowTile without_mask(const RowTile& rows, std::int64_t count) {
  RowTile all = rows;
  all.last_key = count;
  all.mask = {};
  return all;
}

// Puts the thread into the state that bf16 products require, for the lifetime of this object.
class Bf16Scope {
 public:
  explicit Bf16Scope(bool wanted) : tiles_(wanted ? &bf16_microkernel() : nullptr) {
    if (tiles_ != nullptr) tiles_->begin();
  }
  ~Bf16Scope() {
    if (tiles_ != nullptr) tiles_->end();
  }
  Bf16Scope(const Bf16Scope&) = delete;
  Bf16Scope& operator=(const Bf16Scope&) = delete;

 private:
  const Microkernel* tiles_;
};

// A row tile's accumulator for the gradient of q, by lanes and without a factor. Other queries that are views of q add
// their gradients to it.
template <class T>
struct QueryGradient {
  View view;
  T* lanes;
  T factor;

  // Takes `own` [width, tile_rows] times own_factor: adds it to `lanes` if d is q's gradient, else writes it to d.
  void take(const View& d, const RowTile& rows, std::int64_t width, const T* own, T own_factor) {
    if (d.data == view.data) {
      if (factor != 1) scale_tile(lanes, std::exchange(factor, T{1}), width, rows.lanes);
      return add_tile(lanes, own, own_factor, width, rows.lanes);
    }
    unpack_lanes(d, rows, width, own, own_factor);
  }
};

// The products of one thread.
template <class T>
class PairProducts {
 public:
  struct Uses {
    double factor = 1;     // multiplies x.y
    bool pairs = true;     // which of the functions below are called
    bool by_keys = true;   // add_keys
    bool by_rows = true;   // add_rows
    bool reads_x = false;  // x() is called
  };
  PairProducts(const View& x, std::int64_t keys, const Uses& uses, Arena& arena)
      : width_(x ? x.shape[3] : 0),
        ld_(round_up(width_, vector_lanes<T>)),
        factor_(static_cast<T>(uses.factor)),
        keeps_x_(uses.reads_x || x.dtype != DType::bf16 || !has_bf16_instructions()),
        has_y_(uses.pairs || uses.by_rows),
        x_(arena.take<T>((keeps_x_ ? keys : tile_keys) * width_)),
        y_rows_(arena.take<T>(has_y_ ? tile_rows * ld_ : 0)) {
    const bool is_bf16 = x && x.dtype == DType::bf16;
    rounds_ = is_bf16 && !has_bf16_instructions();
    if (is_bf16 && !rounds_) {
      bf16_.emplace(keys, width_, Bf16Operands::Uses{uses.pairs, uses.by_keys, uses.by_rows}, arena);
    } else {
      y_lanes_ = arena.take<T>(has_y_ ? tile_rows * width_ : 0);
      rounded_y_ = rounds_ ? arena.take<T>(tile_rows * ld_) : y_rows_;
      rounded_tile_ = arena.take<T>(rounds_ ? tile_keys * tile_rows : 0);
    }
    int exponent = 0;
    if (is_bf16) after_ = std::frexp(uses.factor, &exponent) != 0.5;
  }

  void open_keys(const View& x, std::int64_t batch, std::int64_t key_head) {
    const bool as_it_lies = bf16_ && !keeps_x_ && x.strides[3] == 1;
    for (std::int64_t first = 0; first < x.shape[2]; first += tile_keys) {
      const std::int64_t count = std::min(tile_keys, x.shape[2] - first);
      T* const tile = x_ + (keeps_x_ ? first * width_ : 0);
      if (as_it_lies) {
        const Matrix<Bfloat16> own(x, batch, key_head);
        in_bf16([&](auto& operands) { operands.pack_x(&own.at(first, 0), own.row_step, first, count); });
        continue;
      }
      pack_rows(tile, width_, x, batch, key_head, first, count, width_, T{1}, count);
      in_bf16([&](auto& operands) { operands.pack_x(tile, width_, first, count); });
    }
  }
  void open_rows(const View& y, const RowTile& rows) {
    pack_rows(y_rows_, ld_, y, rows.batch, rows.head, rows.first, rows.rows, width_, after_ ? T{1} : factor_,
              tile_rows);
    const bool packed = in_bf16([&](auto& operands) { operands.pack_y(y_rows_, ld_); });
    if (packed) return;
    if (rounds_) round_to_bf16(rounded_y_, y_rows_, tile_rows * ld_);
    copy_transposed(y_lanes_, tile_rows, rounded_y_, ld_, tile_rows, width_, T{1});
  }
  // x [K, w], and the row tile's factor y [tile_rows, w rounded up to whole vectors]. For bf16 the latter may be y
  // itself, not rounded yet.
  const T* x() const { return x_; }
  const T* y_rows() const { return y_rows_; }

  // tile[j][i] = factor x_j . y_i; 0 above the diagonal.
  void pairs(const RowTile& rows, const KeyTile& keys, T* tile) {
    const bool done = in_bf16([&](auto& operands) { operands.pair_products(rows, keys, tile); });
    if (!done) pair_products(rows, keys, tile, x_ + keys.first * width_, y_lanes_, width_);
    if (after_) scale_tile(tile, factor_, keys.keys, rows.lanes);
  }
  // y_i += sum_j tile[j][i] x_j, y by lanes. May set the tile to 0 above the diagonal.
  void add_keys(const RowTile& rows, const KeyTile& keys, T* y, T* tile) {
    const bool done = in_bf16([&](auto& operands) { operands.add_keys_to_lanes(rows, keys, y, tile); });
    if (!done) add_keys_to_lanes(rows, keys, y, as_multiplied(keys, tile), x_ + keys.first * width_, width_);
  }
  // x_j += sum_i tile[j][i] y_i, with y as in y_rows(). x has all keys, with rows rounded up to whole vectors.
  void add_rows(const RowTile& rows, const KeyTile& keys, T* x, T* tile) {
    T* const first = x + keys.first * ld_;
    const bool done = in_bf16([&](auto& operands) { operands.add_rows_to_keys(rows, keys, first, ld_, tile); });
    if (!done) add_rows_to_keys(rows, keys, first, as_multiplied(keys, tile), rounded_y_, ld_);
  }
  // From the gradient of the products: adds to d_y, still without gradient_factor(), and to d_x. Null: not needed.
  void add_gradients(const RowTile& rows, const KeyTile& keys, T* d_y, T* d_x, T* d_tile) {
    if (after_) scale_tile(d_tile, factor_, keys.keys, rows.lanes);
    if (d_y != nullptr) add_keys(rows, keys, d_y, d_tile);
    if (d_x != nullptr) add_rows(rows, keys, d_x, d_tile);
  }
  // The factor still to be applied to y_rows(), and to gradients by lanes.
  T factor_after() const { return after_ ? factor_ : T{1}; }
  T gradient_factor() const { return after_ ? T{1} : factor_; }

 private:
  const T* as_multiplied(const KeyTile& keys, const T* tile) {
    if (!rounds_) return tile;
    round_to_bf16(rounded_tile_, tile, keys.keys * tile_rows);
    return rounded_tile_;
  }
  // Calls f(operands) if they are bf16; returns whether they are.
  template <class F>
  bool in_bf16(const F& f) {
    if constexpr (std::is_same_v<T, float>) {
      if (bf16_) f(*bf16_);
      return bf16_.has_value();
    }
    return false;
  }
  std::int64_t width_, ld_;
  T factor_;
  bool keeps_x_, has_y_;
  bool rounds_ = false;  // bf16 values that are multiplied as f32 are rounded first
  bool after_ = false;   // apply the factor after the product: unless a power of two, it would round y a second time
  T *x_, *y_rows_;
  T *y_lanes_ = nullptr, *rounded_y_ = nullptr, *rounded_tile_ = nullptr;
  std::optional<Bf16Operands> bf16_;
};

}  // namespace tally::cpu
