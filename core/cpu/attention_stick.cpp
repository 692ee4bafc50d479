// Stick-breaking on one tile (arXiv 2410.17980): of the logits l, biases and all, the sum of what nearer keys and the
// key itself have taken:
//   l'_ij = l_ij - sum_{k=j..i-1} softplus(l_ik)
// never above 0, so that weights are e^l' as it stands. Backward:
//   dl_ij = dl'_ij - sigmoid(l_ij) sum_{k<=j} dl'_ik
// once more a running sum from the left.
#include <cmath>
#include <limits>

#include "core/attention/policies.hpp"
#include "core/cpu/attention_shapes.hpp"

namespace tally::cpu {

namespace {

template <class T, bool keep>
TALLY_CLONES void take_from_stick(T* score, T* carry, T* share, const RowTile rows, const KeyTile keys,
                                  bool attend_current) {
  alignas(64) T lost[tile_rows] = {};  // what rounding loses of the sums
  for (std::int64_t j = keys.keys - 1; j >= 0; --j) {
    const Lanes seeing = keys.seeing(rows, j, !attend_current);
    T* const l = score + j * tile_rows;
    T* const sigma = share + (keep ? j * tile_rows : 0);
#pragma omp simd
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(rows.lanes); ++i) {
      const bool seen = seeing.hold(i);
      const T logit = l[i];
      const T own = seen ? attention::stick_taken(logit) : T{0};
      const T sum = carry[i] + own;
      lost[i] += (carry[i] - sum) + own;
      carry[i] = sum;
      l[i] = seen ? logit - (sum + lost[i]) : -std::numeric_limits<T>::infinity();
      if constexpr (keep) sigma[i] = seen ? math::sigmoid(logit) : T{0};
    }
  }
  for (std::int64_t i = 0; i < tile_rows; ++i) carry[i] += lost[i];
}

template <class T>
TALLY_CLONES void give_back_to_stick(T* d, T* run, const T* share, std::int64_t keys, std::int64_t lanes) {
  for (std::int64_t j = 0; j < keys; ++j) {
    const std::int64_t row = j * tile_rows;
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) {
      run[i] += d[row + i];
      d[row + i] -= share[row + i] * run[i];
    }
  }
}

template <class T>
class Stick final : public ScanTile<T> {
 public:
  Stick(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena)
      : attend_current_(call.scan.attend_current),
        share_(arena.take<T>(gradients != nullptr ? tile_keys * tile_rows : 0)) {}

  void open_head(std::int64_t, std::int64_t, T*, double*) override {}
  void open_rows(const RowTile&) override {
    std::fill_n(carry_, tile_rows, T{0});
    std::fill_n(run_, tile_rows, T{0});
  }
  bool used_up(const RowTile& rows) const override {
    return skips_tiles() &&
           std::all_of(carry_, carry_ + rows.rows, [](T taken) { return taken > negligible_exponent<T>; });
  }
  void add(const RowTile& rows, const KeyTile& keys, T* score, bool for_gradient) override {
    if (for_gradient) {
      take_from_stick<T, true>(score, carry_, share_, rows, keys, attend_current_);
    } else {
      take_from_stick<T, false>(score, carry_, nullptr, rows, keys, attend_current_);
    }
  }
  void gradient(const RowTile& rows, const KeyTile& keys, const T*, T* d) override {
    give_back_to_stick(d, run_, share_, keys.keys, rows.lanes);
  }
  void close_rows(const RowTile&, const T*) override {}
  void write_shared(const SharedSums&) const override {}

 private:
  using ScanTile<T>::carry_;
  bool attend_current_;
  T* share_;                      // sigmoid of the logits, [tile_keys, tile_rows]
  alignas(64) T run_[tile_rows];  // sum of dl' over the keys so far, from the left
};

}  // namespace

template <class T>
ScanTile<T>* ScanTile<T>::make(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena) {
  if (call.scan.kind == AttentionScan::Kind::stick_breaking) return arena.make<Stick<T>>(call, gradients);
  return make_contextual<T>(call, gradients, arena);
}

template class ScanTile<float>;
template class ScanTile<double>;

}  // namespace tally::cpu
