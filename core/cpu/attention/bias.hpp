// A bias on one tile (kinds: core/attention/problem.hpp). A thread has one object per bias, and likewise one of the
// softmax rule and of the score modification. It holds the data of the current head and row tile, and accumulates
// gradients until the tile, or the head, is done.
//
// Order of calls: open_head; for each row tile open_rows, then key tiles, then (backward) close_rows.
// Forward takes key tiles from the diagonal to the left, backward from the left to the diagonal. All memory comes from
// the kernel's workspace. A constructor reads only shapes.
#pragma once

#include "core/cpu/attention/partition.hpp"

namespace tally::cpu {

template <class T>
class BiasTile {
 public:
  // Null if the arena only counts.
  static BiasTile* make(const AttentionCall& call, const BiasOperands<View>& bias, const BiasOperands<View>* gradient,
                        Arena& arena);

  // sums: of the head, to which backward adds (SharedSums); forward gives null.
  virtual void open_head(std::int64_t batch, std::int64_t head, const BiasOperands<double*>& sums) {
    (void)batch, (void)head, (void)sums;
  }
  virtual void open_rows(const RowTile& rows) { (void)rows; }
  virtual void add(const RowTile& rows, const KeyTile& keys, T* score) = 0;
  // The largest value in the tile, or an upper bound of it; infinity if a bound would be too expensive.
  virtual double upper_bound(const RowTile& rows, const KeyTile& keys) const {
    return (void)rows, (void)keys, std::numeric_limits<double>::infinity();
  }
  virtual void gradient(const RowTile& rows, const KeyTile& keys, const T* d) = 0;
  virtual void close_rows(const RowTile& rows) { (void)rows; }

 protected:
  ~BiasTile() = default;
};

}  // namespace tally::cpu
