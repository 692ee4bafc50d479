// Products of rows with a vector for each distance, computed tile by tile:
//   l_ij += scale r_i.e_n,  n = i - j                        (DistanceOperands, core/attention/problem.hpp)
// The pairs of a tile have few distances: one more for each row, one less for each key. The products of the rows with
// all of these distances are a second tile, p[n][i], which is read along its diagonals. Neighbouring key tiles share
// tile_rows distances, which are multiplied once, forward and backward.
#pragma once

#include "core/cpu/attention/products.hpp"

namespace tally::cpu {

// The products of one thread.
template <class T>
class DistanceProducts {
 public:
  DistanceProducts(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena);

  bool given() const { return static_cast<bool>(call_.distance.key); }
  void open_keys(std::int64_t batch, std::int64_t key_head);
  void open_rows(const RowTile& rows);
  void add(const RowTile& rows, const KeyTile& keys, T* score);
  // d: the gradient of the tile's logits. Adds gradients of e to `sums`, [W, w rounded up to whole vectors]. close_rows
  // writes the gradients of the rows or adds them to q's.
  void gradient(const RowTile& rows, const KeyTile& keys, const T* d, T* sums);
  void close_rows(const RowTile& rows, T* sums, QueryGradient<T>& d_q);

 private:
  // The distances begin .. end - 1.
  struct Distances {
    std::int64_t begin = 0, end = 0;
    bool any() const { return begin < end; }
  };
  // A tile's distances, extended to multiples of bf16_keys, as bf16 tiles require.
  static constexpr std::int64_t most_held = tile_rows + tile_keys + 2 * bf16_keys;
  static Distances of_tile(const RowTile& rows, const KeyTile& keys);

  Distances in_table(const Distances& of) const {
    return {std::clamp<std::int64_t>(of.begin, 0, distances_), std::clamp<std::int64_t>(of.end, 0, distances_)};
  }
  void multiply(const RowTile& rows, const Distances& of);
  void multiply_gradient(const RowTile& rows, const Distances& of, T* sums);
  void add_gradients(const RowTile& rows, const KeyTile& distances, T* d_tile, T* sums);

  const AttentionCall& call_;
  const AttentionGradients* gradients_;
  std::int64_t width_;      // w
  std::int64_t distances_;  // W
  bool caps_;               // whether distances beyond W occur and use the last row of e
  PairProducts<T> of_e_;
  // By distance and lane, beginning with the first distance of held_ or d_held_.
  T *products_, *d_products_;
  Distances held_, d_held_;  // later tiles still add to d_held_
  T *shifted_, *d_tile_;     // for reading along diagonals
  T* d_rows_;                // [w, tile_rows]
  // With a cap: the products of the last row of e, which serves all distances beyond it.
  alignas(64) T last_[tile_rows], d_last_[tile_rows];
};

}  // namespace tally::cpu
