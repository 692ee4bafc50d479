// Queries that walk to the left through blocks of tokens, and are changed by each one that they leave behind
// (AttentionMoves, core/attention/call.hpp), on the tiles of one row tile. A row tile lies in one block.
//
// Right to left, with q of the block before the own one as it is given, for product
//   u_n = -W_n q_n,  q_{n-1} = q_n + Y_n^T u_n
// and, d_n the gradient of q_n from all that is further left, left to right
//   dY_n += u_n d_{n-1}^T,  du_n = -Y_n d_{n-1},  dW_n += du_n q_n^T,  d_n = d_{n-1} + W_n^T du_n + what the keys of n
//   give
// The queries of every block are kept for a row tile: T d numbers a thread. They are made when a tile first asks for
// them: tiles to the left that no row sees cost nothing, and those left out between two others cost the walk alone.
#pragma once

#include "core/cpu/attention_chunks.hpp"
#include "core/cpu/attention_tile.hpp"

namespace tally::cpu {

template <class T>
class Moves {
 public:
  Moves(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena);

  // Whether the call has any; else nothing else here is called.
  bool given() const { return given_; }

  void open_keys(const Chunk& chunk);
  // q of the row tile, scaled: [tile_rows, its width rounded up to whole vectors] and [width, tile_rows].
  void open_rows(const RowTile& rows, const T* q_rows, const T* q_lanes);
  // The largest norm of a query as it meets keys of this tile; infinity where not all products are of these.
  double largest_norm(const RowTile& rows, const KeyTile& keys);
  // The products of the tile with the keys k [K, width].
  void scores(const RowTile& rows, const KeyTile& keys, const T* k, T* score);

  // Backward: open_gradient after open_rows, then tiles from left to right, then close_gradient.
  void open_gradient();
  // From the gradient of the tile's products: adds to d_q_lanes [width, tile_rows], to d_k [K, width rounded up] and to
  // the sums, and writes that of the own products.
  void gradient(const RowTile& rows, const KeyTile& keys, const T* k, const T* d_score, T* d_q_lanes, T* d_k,
                const MoveOperands<T*>& sums);
  void close_gradient(const RowTile& rows, T* d_q_lanes, const MoveOperands<T*>& sums);

 private:
  std::int64_t others() const { return all_width_ - width_; }
  // f(block, first key, keys) for the blocks that the tile has keys of.
  template <class F>
  void for_each_part(const KeyTile& keys, F&& f) const;
  // The queries as they meet the keys of a block left of the own one.
  const T* at(std::int64_t block) const { return block == own_ - 1 ? q_lanes_ : at_ + block * width_ * tile_rows; }
  const T* reach(const RowTile& rows, std::int64_t block);
  T* read_off(std::int64_t block) const { return read_off_ + (gradients_ != nullptr ? block * block_ * tile_rows : 0); }
  void move(const RowTile& rows, std::int64_t block, const T* from, T* to);
  void put_in_rows(std::int64_t block);
  // Takes the gradient of the queries on to those of `block`.
  void carry(const RowTile& rows, std::int64_t block, const MoveOperands<T*>& sums);
  void carry_through(const RowTile& rows, std::int64_t block, const MoveOperands<T*>& sums);

  const AttentionCall& call_;
  const AttentionGradients* gradients_;
  bool given_, product_;
  std::int64_t all_width_, all_ld_, width_, ld_;  // of q, and of what moves; ld: rounded up to whole vectors
  std::int64_t block_, blocks_;                   // C, N
  // Of the head of keys: [K, width], [K, width], [N, width].
  T *read_, *taken_, *factor_;
  // Of the row tile; _lanes [.., tile_rows].
  T *own_rows_, *own_lanes_;  // [tile_rows, C], [C, tile_rows]: scaled
  T* at_;                     // [N, width, tile_rows]
  T* read_off_;               // u: [C, tile_rows], for backward of every block
  double* norm_;              // [N]: of the queries at each block; below 0: not known yet
  const T *q_rows_ = nullptr, *q_lanes_ = nullptr;
  std::int64_t own_ = 0, reached_ = 0;  // the block of the row tile, the leftmost whose queries are made
  // Backward.
  T *rows_ = nullptr, *d_lanes_ = nullptr, *d_rows_ = nullptr, *d_read_off_ = nullptr;
  std::int64_t in_rows_ = 0, carried_ = 0;  // the blocks whose queries are in rows_, and whose gradient d_lanes_ is
};

}  // namespace tally::cpu
