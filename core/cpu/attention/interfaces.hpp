// The score shapes on one tile (formulas: core/attention/problem.hpp). Each thread has one object per shape. It holds
// the data of the current head and row tile, and accumulates gradients until the tile, or the head, is done.
//
// Order of calls: open_head; for each row tile open_rows, then key tiles, then (backward) close_rows; write_shared once
// everything is done.
// Forward takes key tiles from the diagonal to the left, backward from the left to the diagonal. All memory comes from
// the kernel's workspace. A constructor reads only shapes.
#pragma once

#include "core/attention/score_mod_traits.hpp"
#include "core/cpu/attention/tile.hpp"

namespace tally::cpu {

// Sums that several chunks contribute to: each share of the row tiles of one head has separate doubles, which are
// added in a fixed order afterwards.
struct SharedSums {
  double* data = nullptr;
  std::int64_t step = 0;  // between chunks
  std::int64_t batches = 0, heads = 0, shares = 0;

  double* at(std::int64_t batch, std::int64_t head, std::int64_t share) const {
    return data + ((batch * heads + head) * shares + share) * step;
  }
  // The total of number n of a head.
  double of_head(std::int64_t head, std::int64_t n = 0) const {
    double sum = 0;
    for (std::int64_t batch = 0; batch < batches; ++batch) {
      for (std::int64_t share = 0; share < shares; ++share) sum += at(batch, head, share)[n];
    }
    return sum;
  }
};

// A score modification on one tile, most often with a running sum over the keys from j to i.
template <class T>
class ScanTile {
 public:
  // Backward adds to `sums` by key (core/cpu/attention/key_accumulators.hpp) and to `shared`; forward gives null.
  virtual void open_head(std::int64_t batch, std::int64_t head, const ScoreModOperands<T*>& sums, double* shared) = 0;
  virtual void open_rows(const RowTile& rows) = 0;
  // Running sums over the keys to the right of the tile that comes next, [tile_rows]; forward advances them, backward
  // sets them before each tile.
  T* carry() { return carry_; }
  // Whether all weights to the left of the running sums are negligible.
  virtual bool exhausted(const RowTile& rows) const { return (void)rows, false; }
  // Applies the score modification to the scores, from the tile's last key to its first. for_gradient: saves the data
  // that `gradient` needs.
  virtual void add(const RowTile& rows, const KeyTile& keys, T* score, bool for_gradient) = 0;
  // Whether all sums were saturated before the last tile passed to `add`, so that its gates and places do not matter.
  bool saturated() const { return saturated_; }
  // Turns d, the gradient of the logits, into the gradient of the scores. weights: before dropout.
  virtual void gradient(const RowTile& rows, const KeyTile& keys, const T* weights, T* d) = 0;
  // d_logit_sums: the sum of d along each row, without rounding errors; null if it is not known.
  virtual void close_rows(const RowTile& rows, const T* d_logit_sums) = 0;
  virtual void write_shared(const SharedSums& sums) const = 0;

 protected:
  ~ScanTile() = default;
  alignas(64) T carry_[tile_rows];
  bool saturated_ = false;
};

// Null if the arena only counts.
template <class T>
ScanTile<T>* make_score_mod(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena);

// Whether the scan reads the logits with their biases.
inline bool after_biases(const AttentionScan& scan) { return scan.mod != nullptr && scan.mod->traits.after_biases; }
// Whether the running sum is the spent mass of the rule exp (stick-breaking): the leftover mass is e^-sum.
inline bool spends(const AttentionCall& call) {
  return call.softmax_rule.kind == AttentionNormaliser::Kind::exp && call.scan.mod != nullptr &&
         call.scan.mod->traits.sums;
}
// Number of doubles of shared sums that a chunk needs for the scan: one for each number of a head.
inline std::int64_t shared_count(const AttentionScan& scan) { return scan.mod != nullptr ? scan.mod->traits.heads : 0; }
// For a bias: one a key for toeplitz and row-column.
inline std::int64_t shared_count(const AttentionBias& bias, std::int64_t keys) {
  using Kind = AttentionBias::Kind;
  return bias.kind == Kind::toeplitz || bias.kind == Kind::row_column ? keys : 0;
}
// A tile is skipped if all its weights are known beforehand to be below e^-this times their row's sum.
template <class T>
inline constexpr T negligible_exponent = sizeof(T) == sizeof(float) ? T{20} : T{40};
// False with TALLY_SKIP_TILES=0 in the environment, to measure the cost of computing all tiles.
bool skips_tiles();

template <class T>
class BiasTile {
 public:
  // Null if the arena only counts.
  static BiasTile* make(const AttentionCall& call, const AttentionBias& bias, const BiasOperands<View>* gradient,
                        Arena& arena);

  virtual void open_head(std::int64_t batch, std::int64_t head, double* shared) = 0;
  virtual void open_rows(const RowTile& rows) { (void)rows; }
  virtual void add(const RowTile& rows, const KeyTile& keys, T* score) = 0;
  // The largest value in the tile, or an upper bound of it; infinity if a bound would be too expensive.
  virtual double upper_bound(const RowTile& rows, const KeyTile& keys) const {
    return (void)rows, (void)keys, std::numeric_limits<double>::infinity();
  }
  virtual void gradient(const RowTile& rows, const KeyTile& keys, const T* d) = 0;
  virtual void close_rows(const RowTile& rows) { (void)rows; }
  virtual void write_shared(const SharedSums& sums) const { (void)sums; }

 protected:
  ~BiasTile() = default;
};

}  // namespace tally::cpu
