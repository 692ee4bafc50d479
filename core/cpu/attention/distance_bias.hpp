// Biases that every row reads by distance, l_ij += z_i[n] with n = i - j: given as z, or as products with a vector for
// each distance, z_i[n] = scale r_i.e_n (DistanceOperands, core/attention/problem.hpp). A row tile holds z by distance
// and lane, z[n][i], for all distances of its rows. The z of a tile of pairs are diagonals of it.
#pragma once

#include "core/cpu/attention/products.hpp"

namespace tally::cpu {

// z of the current row tile, and its gradient. Distances of `width` or more have no term, or with cap the last one's.
template <class T>
class RowsByDistance {
 public:
  // keys: of the call, or 0 if there is no such bias.
  RowsByDistance(std::int64_t width, bool cap, std::int64_t keys, bool with_gradient, Arena& arena);

  // Begins a row tile. The caller writes z at the distances 0 .. written() - 1, then calls extend().
  void open_rows(const RowTile& rows);
  void extend();
  void add(const RowTile& rows, const KeyTile& keys, T* score);
  // d: the gradient of the tile's logits, 0 for masked pairs.
  void gradient(const RowTile& rows, const KeyTile& keys, const T* d);

  std::int64_t width() const { return width_; }
  bool caps() const { return cap_ && width_ < reach_; }
  // The row tile's distances are below reach(), a multiple of bf16_keys.
  std::int64_t reach() const { return reach_; }
  std::int64_t written() const { return std::min(reach_, width_); }
  T* at(std::int64_t distance) const { return z_ + (margin + distance) * tile_rows; }
  T* d_at(std::int64_t distance) const { return d_z_ + (margin + distance) * tile_rows; }

 private:
  static constexpr std::int64_t margin = tile_rows;  // for lanes above the diagonal, whose distances are negative

  std::int64_t width_, reach_ = 0;
  bool cap_;
  T *z_, *d_z_;
  T *shifted_, *d_tile_;  // for reading along diagonals
};

// The products of one thread.
template <class T>
class DistanceProducts {
 public:
  DistanceProducts(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena);

  bool given() const { return static_cast<bool>(call_.distance.key); }
  void open_keys(std::int64_t batch, std::int64_t key_head);
  void open_rows(const RowTile& rows);
  void add(const RowTile& rows, const KeyTile& keys, T* score) { z_.add(rows, keys, score); }
  void gradient(const RowTile& rows, const KeyTile& keys, const T* d) { z_.gradient(rows, keys, d); }
  // Adds gradients of e to `sums`, [W, w rounded up to whole vectors]. Writes the gradients of the rows, or adds them
  // to q's.
  void close_rows(const RowTile& rows, T* sums, QueryGradient<T>& d_q);

 private:
  const AttentionCall& call_;
  const AttentionGradients* gradients_;
  std::int64_t width_;  // w
  RowsByDistance<T> z_;
  PairProducts<T> of_e_;
  T* d_rows_;  // [w, tile_rows]
};

}  // namespace tally::cpu
