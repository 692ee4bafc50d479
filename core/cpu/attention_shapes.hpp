// How the score shapes act on one tile (core/attention/call.hpp has their formulas). One object a thread: it holds what
// a shape needs of the head and of the row tile at hand, and its gradients until the tile, or the head, is done.
//
// Order of calls: open_head; for each row tile open_rows, then key tiles, then (backward) close_rows; write_shared once
// everything is done.
// Forward takes key tiles from the diagonal to the left, backward from the left to the diagonal. All memory comes from
// the kernel's workspace; a constructor looks at shapes only.
#pragma once

#include "core/attention/pair.hpp"
#include "core/cpu/attention_tile.hpp"

namespace tally::cpu {

// Sums that several items of work share: each share of the row tiles of one head has doubles of its own, and afterwards
// they are added in fixed order.
struct SharedSums {
  double* data = nullptr;
  std::int64_t step = 0;  // between items
  std::int64_t batches = 0, heads = 0, shares = 0;

  double* at(std::int64_t batch, std::int64_t head, std::int64_t share) const {
    return data + ((batch * heads + head) * shares + share) * step;
  }
  // Of number n of a head.
  double of_head(std::int64_t head, std::int64_t n = 0) const {
    double sum = 0;
    for (std::int64_t batch = 0; batch < batches; ++batch) {
      for (std::int64_t share = 0; share < shares; ++share) sum += at(batch, head, share)[n];
    }
    return sum;
  }
};

// What a scan or a policy makes of the scores: most often with a running sum over the keys from j to i.
template <class T>
class ScanTile {
 public:
  // Backward adds to `sums` by key (core/cpu/attention_key_sums.hpp) and to `shared`; forward gives null.
  virtual void open_head(std::int64_t batch, std::int64_t head, const PolicyOperands<T*>& sums, double* shared) = 0;
  virtual void open_rows(const RowTile& rows) = 0;
  // Running sums over the keys to the right of the tile that comes next, [tile_rows]; forward advances them, backward
  // sets them before each tile.
  T* carry() { return carry_; }
  // Whether nothing to the left of the running sums has a weight that matters.
  virtual bool used_up(const RowTile& rows) const { return (void)rows, false; }
  // The scores become what they are with it, from the tile's last key to its first. For backward what the gradient
  // needs is kept.
  virtual void add(const RowTile& rows, const KeyTile& keys, T* score, bool for_gradient) = 0;
  // Whether all sums were at the table's end before the tile that was added last: gates and places do not matter in it.
  bool settled() const { return settled_; }
  // d holds the gradient of the logits and gets that of the scores; weights: before dropout.
  virtual void gradient(const RowTile& rows, const KeyTile& keys, const T* weights, T* d) = 0;
  // d_logit_sums: what d adds up to along each row, but for rounding; null where that is not known.
  virtual void close_rows(const RowTile& rows, const T* d_logit_sums) = 0;
  virtual void write_shared(const SharedSums& sums) const = 0;

 protected:
  ~ScanTile() = default;
  alignas(64) T carry_[tile_rows];
  bool settled_ = false;
};

// Of a policy; null where the arena only counts.
template <class T>
ScanTile<T>* make_pair(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena);

// Whether the scan sees the logits with their biases.
inline bool after_biases(const AttentionScan& scan) { return scan.policy != nullptr && scan.policy->needs.biased; }
// Whether its sum is of what the rows spend: e^-sum is left over.
inline bool spends(const AttentionScan& scan) { return scan.policy != nullptr && scan.policy->needs.spends; }
// Doubles of shared sums that an item of work needs for the scan: one a number of heads.
inline std::int64_t shared_count(const AttentionScan& scan) {
  return scan.policy != nullptr ? scan.policy->needs.heads : 0;
}
// For a bias: toeplitz and row-column one a key.
inline std::int64_t shared_count(const AttentionBias& bias, std::int64_t keys) {
  using Kind = AttentionBias::Kind;
  return bias.kind == Kind::toeplitz || bias.kind == Kind::row_column ? keys : 0;
}
// Weights below e^-this of their row's sum are not computed where a whole tile of them can be told beforehand.
template <class T>
inline constexpr T negligible_exponent = sizeof(T) == sizeof(float) ? T{20} : T{40};
// False with TALLY_SKIP_TILES=0 in the environment: benches then show what computing all of them takes.
bool skips_tiles();

template <class T>
class BiasTile {
 public:
  // Null where the arena only counts.
  static BiasTile* make(const AttentionCall& call, const AttentionBias& bias, const BiasOperands<View>* gradient,
                        Arena& arena);

  virtual void open_head(std::int64_t batch, std::int64_t head, double* shared) = 0;
  virtual void open_rows(const RowTile& rows) { (void)rows; }
  virtual void add(const RowTile& rows, const KeyTile& keys, T* score) = 0;
  // The largest value in the tile, or a bound on it; infinity where that would cost too much to know.
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
