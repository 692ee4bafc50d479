// Contextual positions (CoPE, arXiv 2405.18719) through a hidden layer, on one tile:
//   p_ij = sum_{k=j..i} g_ik,  l_ij = s_ij + sum_n u_i[n] relu(w[n] p_ij + b[n])
//
// Forward walks the keys from right to left with the rows' running sums. Backward has them again from what forward kept
// at the tiles' edges, and walks from left to right with the running sums of d_p:
//   d_g_ik = sum_{j<=k} d_p_ij,  d_s_ij = d_l_ij + d_g_ij g_ij (1 - g_ij)
#include <algorithm>

#include "core/attention/policies.hpp"
#include "core/cpu/attention_gates.hpp"
#include "core/cpu/attention_shapes.hpp"
#include "core/cpu/attention_sums.hpp"

namespace tally::cpu {

namespace {

using attention::gate;
using attention::gate_slope;

// p += g for the next key, with what rounding loses kept beside the sum: positions of hundreds of gates stay as exact
// as their own type.
template <class T>
TALLY_INLINE T advance_position(T& sum, T& lost, T g) {
  const T next = sum + g;
  lost += (sum - next) + g;
  sum = next;
  return next + lost;
}

template <class T, bool keep>
TALLY_CLONES void add_mlp_term(T* score, const T* gate_score, T* carry, const T* u, const T* w, const T* b,
                               std::int64_t width, const RowTile rows, const KeyTile keys, T* kept_gate,
                               T* kept_position) {
  alignas(64) T p[tile_rows], term[tile_rows], lost[tile_rows] = {};
  for (std::int64_t j = keys.keys - 1; j >= 0; --j) {
    const Lanes seeing = keys.seeing(rows, j);
    const std::int64_t row = j * tile_rows;
#pragma omp simd
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(rows.lanes); ++i) {
      const T g = seeing.hold(i) ? gate(gate_score[row + i]) : T{0};
      p[i] = advance_position(carry[i], lost[i], g);
      term[i] = 0;
      if constexpr (keep) {
        kept_gate[row + i] = g;
        kept_position[row + i] = p[i];
      }
    }
    for (std::int64_t n = 0; n < width; ++n) {
#pragma omp simd
      for (std::int64_t i = 0; i < rows.lanes; ++i) {
        term[i] += u[n * tile_rows + i] * attention::hidden(w[n], b[n], p[i]);
      }
    }
#pragma omp simd
    for (std::int64_t i = 0; i < rows.lanes; ++i) score[row + i] += term[i];
  }
  for (std::int64_t i = 0; i < tile_rows; ++i) carry[i] += lost[i];
}

// Adds to the sums [N, tile_rows] of every hidden unit those over the keys for which it is not zero.
// slope: d term / d p. Takes few keys at a time: what is read of these stays in the nearest cache for all units.
template <class T>
TALLY_CLONES void add_to_unit_sums(const PositionSums sums, T* slope, const T* d, const T* weight, const T* position,
                                   const T* u, const T* w, const T* b, std::int64_t width, std::int64_t keys,
                                   std::int64_t lanes) {
  alignas(64) T rise[tile_rows];
  FewSums<T> few;
  std::fill_n(slope, keys * tile_rows, T{0});
  for (std::int64_t first = 0; first < keys; first += few_keys) {
    for (std::int64_t n = 0; n < width; ++n) {
#pragma omp simd
      for (std::int64_t i = 0; i < lanes; ++i) rise[i] = u[n * tile_rows + i] * w[n];
      few.open(lanes);
      for (std::int64_t j = first; j < std::min(keys, first + few_keys); ++j) {
        const std::int64_t row = j * tile_rows;
#pragma omp simd
        for (std::int64_t i = 0; i < lanes; ++i) {
          const T p = position[row + i];
          const T on = attention::hidden_slope(attention::hidden(w[n], b[n], p));
          const T d_on = on * d[row + i], a_on = on * weight[row + i];
          few.d[i] += d_on;
          few.d_p[i] += d_on * p;
          few.a[i] += a_on;
          few.a_p[i] += a_on * p;
          slope[row + i] += on * rise[i];
        }
      }
      few.close(sums, n * tile_rows, lanes);
    }
  }
}

// What flows on to the gates, from left to right.
template <class T>
TALLY_CLONES void slopes_to_gates(T* d, T* d_gate_score, T* run, const T* slope, const T* kept_gate, std::int64_t keys,
                                  std::int64_t lanes) {
  const bool own = d != d_gate_score;
  for (std::int64_t j = 0; j < keys; ++j) {
    const std::int64_t row = j * tile_rows;
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) {
      const T d_logit = d[row + i];
      run[i] += d_logit * slope[row + i];
      d_gate_score[row + i] = (own ? T{0} : d_logit) + run[i] * gate_slope(kept_gate[row + i]);
    }
  }
}

template <class T>
class MlpTile final : public ScanTile<T> {
 public:
  MlpTile(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena)
      : call_(call),
        gradients_(gradients),
        width_(call.scan.weight.shape[0]),
        gates_(call, gradients, arena),
        rows_(arena.take<T>(tile_rows * width_)),
        u_(arena.take<T>(tile_rows * width_)),
        d_u_(arena.take<T>(gradients != nullptr ? tile_rows * width_ : 0)),
        unit_sums_(arena.take<double>(gradients != nullptr ? 4 * tile_rows * width_ : 0)),
        weight_(arena.take<T>(width_)),
        bias_(arena.take<T>(width_)),
        kept_gate_(arena.take<T>(gradients != nullptr ? tile_keys * tile_rows : 0)),
        kept_position_(arena.take<T>(gradients != nullptr ? tile_keys * tile_rows : 0)),
        slope_(arena.take<T>(gradients != nullptr ? tile_keys * tile_rows : 0)) {}

  void open_head(std::int64_t batch, std::int64_t head, T* d_gate_key, double* shared) override {
    shared_ = shared;
    gates_.open_head(batch, head, d_gate_key);
    for (std::int64_t n = 0; n < width_; ++n) {
      weight_[n] = call_.scan.weight.template as<T>()[n * call_.scan.weight.strides[0]];
      bias_[n] = call_.scan.bias.template as<T>()[n * call_.scan.bias.strides[0]];
    }
  }
  void open_rows(const RowTile& rows) override {
    std::fill_n(carry_, tile_rows, T{0});
    std::fill_n(run_, tile_rows, T{0});
    gates_.open_rows(rows);
    pack_rows(rows_, width_, Matrix<T>(call_.scan.values, rows.batch, rows.head), rows.first, rows.rows, width_, T{1},
              tile_rows);
    transpose_to_lanes(u_, rows_, width_, width_);
    if (gradients_ == nullptr) return;
    std::fill_n(unit_sums_, 4 * tile_rows * width_, 0.0);
    row_sums_.open();
  }
  void add(const RowTile& rows, const KeyTile& keys, T* score, bool for_gradient) override {
    const T* const gate_score = gates_.scores(rows, keys, score);
    if (for_gradient) {
      add_mlp_term<T, true>(score, gate_score, carry_, u_, weight_, bias_, width_, rows, keys, kept_gate_,
                            kept_position_);
    } else {
      add_mlp_term<T, false>(score, gate_score, carry_, u_, weight_, bias_, width_, rows, keys, nullptr, nullptr);
    }
  }
  void gradient(const RowTile& rows, const KeyTile& keys, const T* weights, T* d) override {
    add_to_row_sums(row_sums_.sums(), d, weights, kept_position_, keys.keys, rows.lanes);
    add_to_unit_sums(unit_sums(), slope_, d, weights, kept_position_, u_, weight_, bias_, width_, keys.keys,
                     rows.lanes);
    slopes_to_gates(d, gates_.d_scores(d), run_, slope_, kept_gate_, keys.keys, rows.lanes);
    gates_.add_gradient(rows, keys);
  }
  // The hidden value is w p + b where it is not zero: d_u = w sum_j dl p + b sum_j dl, d_w = u sum_j dl p, ...
  void close_rows(const RowTile& rows, const T* d_logit_sums) override {
    gates_.close_rows(rows);
    const PositionSums sums = unit_sums();
    for (std::int64_t n = 0; n < width_; ++n) {
      for (std::int64_t i = 0; i < rows.rows; ++i) {
        const std::int64_t lane = n * tile_rows + i;
        const double d = row_sums_.balanced(i, d_logit_sums, sums.d[lane], sums.a[lane]);
        const double d_p = row_sums_.balanced(i, d_logit_sums, sums.d_p[lane], sums.a_p[lane]);
        const auto u = static_cast<double>(u_[lane]);
        d_u_[lane] = static_cast<T>(static_cast<double>(weight_[n]) * d_p + static_cast<double>(bias_[n]) * d);
        shared_[n] += u * d_p;
        shared_[width_ + n] += u * d;
      }
    }
    if (gradients_->d_values) {
      unpack_lanes(Matrix<T>(gradients_->d_values, rows.batch, rows.head), rows.first, rows.rows, width_, d_u_, T{1});
    }
  }
  void write_shared(const SharedSums& sums) const override {
    const auto write = [&](const View& d, std::int64_t begin) {
      for (std::int64_t n = 0; n < width_ && d; ++n) {
        double sum = 0;
        for (std::int64_t item = 0; item < sums.batches * sums.heads * sums.shares; ++item) {
          sum += sums.data[item * sums.step + begin + n];
        }
        d.as<T>()[n * d.strides[0]] = static_cast<T>(sum);
      }
    };
    write(gradients_->d_weight, 0);
    write(gradients_->d_bias, width_);
  }

 private:
  PositionSums unit_sums() const { return {unit_sums_, tile_rows * width_}; }

  const AttentionCall& call_;
  const AttentionGradients* gradients_;
  std::int64_t width_;
  GateOperands<T> gates_;
  T *rows_, *u_, *d_u_;  // u and d_u [N, tile_rows]
  double* unit_sums_;
  RowSums row_sums_;
  T *weight_, *bias_;
  T *kept_gate_, *kept_position_, *slope_;  // [tile_keys, tile_rows]; slope: d term / d p
  double* shared_ = nullptr;
  using ScanTile<T>::carry_;
  alignas(64) T run_[tile_rows];
};

}  // namespace

template <class T>
ScanTile<T>* make_mlp(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena) {
  return arena.make<MlpTile<T>>(call, gradients);
}

template ScanTile<float>* make_mlp(const AttentionCall&, const AttentionGradients*, Arena&);
template ScanTile<double>* make_mlp(const AttentionCall&, const AttentionGradients*, Arena&);

}  // namespace tally::cpu
