// Stick-breaking weights on one tile (arXiv 2410.17980), l the logits:
//   A_ij = exp(l_ij - sum_{k=j..i-1} softplus(l_ik))
// The exponent is never above 0, so no maximum is needed. Backward, with x_ij = A_ij (dA_ij - drest_i):
//   dl_ij = x_ij - sigmoid(l_ij) sum_{k<=j} x_ik
// once more a running sum from the left.
#include "core/attention/policies.hpp"
#include "core/cpu/attention_shapes.hpp"

namespace tally::cpu {

namespace {

template <class T, bool keep>
TALLY_CLONES void stick_weights(T* score, T* carry, T* share, const RowTile rows, const KeyTile keys,
                                bool attend_current) {
  alignas(64) T lost[tile_rows] = {};  // what rounding loses of the sums
  for (std::int64_t j = keys.keys - 1; j >= 0; --j) {
    // Lanes before this one do not see the key; without attend_current nor does the one on the diagonal.
    const auto hidden = static_cast<std::int32_t>(
        std::clamp<std::int64_t>(keys.first + j - rows.last_key + (attend_current ? 0 : 1), 0, tile_rows));
    T* const l = score + j * tile_rows;
    T* const sigma = share + (keep ? j * tile_rows : 0);
#pragma omp simd
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(rows.lanes); ++i) {
      const bool seen = i >= hidden;
      const T logit = l[i];
      const T own = seen ? attention::stick_taken(logit) : T{0};
      const T sum = carry[i] + own;
      lost[i] += (carry[i] - sum) + own;
      carry[i] = sum;
      const T taken = sum + lost[i];
      // A weight of a key that is not seen could overflow: 0 instead of its logit.
      const T weight = attention::stick_weight(seen ? logit : T{0}, taken);
      l[i] = seen ? weight : T{0};
      if constexpr (keep) sigma[i] = seen ? math::sigmoid(logit) : T{0};
    }
  }
  for (std::int64_t i = 0; i < tile_rows; ++i) carry[i] += lost[i];
}

template <class T>
TALLY_CLONES void stick_gradient(T* d, T* run, const T* weight, const T* share, const T* d_rest, std::int64_t keys,
                                 std::int64_t lanes) {
  for (std::int64_t j = 0; j < keys; ++j) {
    const std::int64_t row = j * tile_rows;
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) {
      const T x = weight[row + i] * (d[row + i] - d_rest[i]);
      run[i] += x;
      d[row + i] = x - share[row + i] * run[i];
    }
  }
}

}  // namespace

template <class T>
StickTile<T>::StickTile(const AttentionCall& call, bool for_gradient, Arena& arena)
    : attend_current_(call.scan.attend_current), share_(arena.take<T>(for_gradient ? tile_keys * tile_rows : 0)) {}

template <class T>
void StickTile<T>::open_rows() {
  std::fill_n(carry_, tile_rows, T{0});
  std::fill_n(run_, tile_rows, T{0});
}

template <class T>
bool StickTile<T>::used_up(const RowTile& rows) const {
  return skips_tiles() &&
         std::all_of(carry_, carry_ + rows.rows, [](T taken) { return taken > negligible_exponent<T>; });
}

template <class T>
void StickTile<T>::weights(const RowTile& rows, const KeyTile& keys, T* score, bool for_gradient) {
  if (for_gradient) {
    stick_weights<T, true>(score, carry_, share_, rows, keys, attend_current_);
  } else {
    stick_weights<T, false>(score, carry_, nullptr, rows, keys, attend_current_);
  }
}

template <class T>
void StickTile<T>::gradient(const RowTile& rows, const KeyTile& keys, const T* weights, const T* d_rest, T* d) {
  stick_gradient(d, run_, weights, share_, d_rest, keys.keys, rows.lanes);
}

template class StickTile<float>;
template class StickTile<double>;

}  // namespace tally::cpu
