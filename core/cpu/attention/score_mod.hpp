// A score modification on one tile. The loops over its pairs are in core/cpu/attention/score_mod_loops.hpp. Only for
// core/cpu/attention/attention.cpp.
#pragma once

#include <algorithm>

#include "core/cpu/attention/products.hpp"
#include "core/cpu/attention/score_mod_loops.hpp"

namespace tally::cpu {

// Separate operands of gates: scale r_i.G_j next to the score, and its gradients.
template <class T>
class GateOperands {
 public:
  GateOperands(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena)
      : call_(call),
        gradients_(gradients),
        width_(call.score_mod.gate_key.shape[3]),
        products_(call.score_mod.gate_key, call.keys(),
                  {.factor = call.scale, .by_keys = gradients != nullptr, .by_rows = gradients != nullptr}, arena),
        score_(arena.take<T>(tile_keys * tile_rows)),
        d_lanes_(arena.take<T>(tile_rows * width_)) {}

  void open_head(std::int64_t batch, std::int64_t head, T* d_gate_key) {
    d_key_ = d_gate_key;
    products_.open_keys(call_.score_mod.gate_key, batch, head / gqa_group_size(call_));
  }
  void open_rows(const RowTile& rows) {
    products_.open_rows(call_.score_mod.gate_query, rows);
    std::fill_n(d_lanes_, tile_rows * width_, T{0});
  }
  // The tile of p.gate_logit.
  T* scores(const RowTile& rows, const KeyTile& keys) {
    products_.pairs(rows, keys, score_);
    return score_;
  }
  // The same memory, for the gradient of that tile. The caller writes it before add_gradient.
  T* d_scores() { return score_; }
  void add_gradient(const RowTile& rows, const KeyTile& keys) {
    products_.add_gradients(rows, keys, d_lanes_, d_key_, score_);
  }
  void close_rows(const RowTile& rows) {
    if (!gradients_->score_mod.gate_query) return;
    unpack_lanes(gradients_->score_mod.gate_query, rows, width_, d_lanes_, products_.gradient_factor());
  }

 private:
  const AttentionCall& call_;
  const AttentionGradients* gradients_;
  std::int64_t width_;
  PairProducts<T> products_;
  T *score_, *d_lanes_;
  T* d_key_ = nullptr;
};

// The loops for the widest vectors that both the processor and the build support.
inline const ScoreModLoops& loops_of(const ScoreMod& mod) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  if (mod.loops_v4 != nullptr && __builtin_cpu_supports("x86-64-v4")) return *mod.loops_v4;
  if (mod.loops_v3 != nullptr && __builtin_cpu_supports("x86-64-v3")) return *mod.loops_v3;
#endif
  return *mod.loops;
}
template <class T>
const ScoreModLoopsOf<T>& loops_for(const ScoreMod& mod) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return loops_of(mod).f32;
  } else {
    return mod.loops->f64;
  }
}

// The gradient of a row's table from the accumulators of its n entries.
template <class T>
TALLY_CLONES void entry_gradients(T* d_values, const Entry<T>* row, std::int64_t n) {
  d_values[0] = row[0].low - row[0].rise;
#pragma omp simd
  for (std::int64_t i = 1; i < n; ++i) d_values[i] = row[i].low - row[i].rise + row[i - 1].rise;
}

// A score modification, usually with a running sum over the keys from j to i, on the current row tile.
template <class T>
class ScoreModTile {
 public:
  ScoreModTile(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena)
      : call_(call),
        gradients_(gradients),
        traits_(call.score_mod.mod->traits),
        loops_(loops_for<T>(*call.score_mod.mod)),
        scalar_count_(traits_.rows + traits_.heads),
        gates_(call.score_mod.gate_key ? arena.make<GateOperands<T>>(call, gradients) : nullptr) {
    const auto take = [&](bool needed, std::int64_t count) { return arena.take<T>(needed ? count : 0); };
    const auto take_entries = [&](bool needed) { return arena.take<Entry<T>>(needed ? tile_rows * tile_.ld : 0); };
    constexpr std::int64_t pairs = tile_keys * tile_rows;
    const bool differentiates = gradients != nullptr, looks_up = traits_.table && !traits_.knots;
    if (traits_.table) tile_.entries = traits_.knots ? call.score_mod.knots.shape[0] : call.score_mod.table.shape[3];
    tile_.ld = tile_.entries + (looks_up ? 1 : 0);
    tile_.row_scalars = take(true, tile_rows * traits_.rows);
    tile_.head_scalars = take(true, traits_.heads);
    tile_.values = take(looks_up, tile_rows * tile_.ld);
    tile_.table = take_entries(traits_.knots);
    tile_.d_table = take_entries(differentiates);
    tile_.knots = call.score_mod.knots.as<T>();
    tile_.saved_score = take(differentiates, pairs);
    tile_.saved_sum = take(differentiates && traits_.sums, pairs);
    tile_.saved_gate_slope = take(differentiates && traits_.sums, pairs);
    tile_.saved_entry = take(differentiates && looks_up && !traits_.adds_entry, pairs);
    tile_.saved_slope = take(differentiates && looks_up, pairs);
    tile_.saturated_keys = saturated_keys_;
    d_rows_ = take(differentiates, tile_rows * traits_.rows);
    sums_ = arena.take<double>(differentiates && scalar_count_ > 0 ? (2 + 2 * scalar_count_) * tile_rows : 0);
  }

  // Backward adds to d_gate_key (KeyAccumulators) and to d_heads (SharedSums); forward gives null.
  void open_head(std::int64_t batch, std::int64_t head, T* d_gate_key, double* d_heads) {
    d_heads_ = d_heads;
    if (gates_ != nullptr) gates_->open_head(batch, head, d_gate_key);
    const View& heads = call_.score_mod.heads;
    for (std::int64_t n = 0; n < traits_.heads; ++n) {
      tile_.head_scalars[n] = heads.as<T>()[head * heads.strides[0] + n * heads.strides[1]];
    }
  }
  void open_rows(const RowTile& rows) {
    std::fill_n(carry_, tile_rows, T{0});
    std::fill_n(run_, tile_rows, T{0});
    if (gates_ != nullptr) gates_->open_rows(rows);
    if (traits_.table) open_tables(rows);
    if (traits_.rows > 0) pack_lanes(tile_.row_scalars, call_.score_mod.rows, rows, 0, traits_.rows);
    if (gradients_ != nullptr && scalar_count_ > 0) std::fill_n(sums_, (2 + 2 * scalar_count_) * tile_rows, 0.0);
  }
  // Running sums over the keys to the right of the tile that comes next, [tile_rows]; forward advances them, backward
  // sets them before each tile.
  T* running_sums() { return carry_; }
  // Whether all weights to the left of the running sums are negligible.
  bool exhausted(const RowTile& rows) const {
    return spends(call_) && skips_tiles() &&
           std::all_of(carry_, carry_ + rows.rows, [](T spent) { return spent > negligible_exponent<T>; });
  }
  // Applies the score modification to the scores, from the tile's last key to its first. for_gradient: saves the data
  // that `gradient` needs.
  void add(const RowTile& rows, const KeyTile& keys, T* score, bool for_gradient) {
    saturated_ = traits_.saturates && is_saturated(rows);
    const T* gate_logit = nullptr;
    if (gates_count()) gate_logit = gates_ != nullptr ? gates_->scores(rows, keys) : score;
    const auto add = for_gradient ? loops_.add_and_keep : loops_.add;
    add(tile_at(rows, keys), score, gate_logit, carry_);
  }
  // Whether all sums were saturated before the last tile passed to `add`, so that its gates and places do not matter.
  bool saturated() const { return saturated_; }
  // Turns d, the gradient of the logits, into the gradient of the scores. weights: before dropout.
  void gradient(const RowTile& rows, const KeyTile& keys, const T* weights, T* d) {
    const bool own_operands = gates_count() && gates_ != nullptr;
    loops_.gradient(tile_at(rows, keys), d, own_operands ? gates_->d_scores() : d, weights, run_, sums_);
    if (own_operands) gates_->add_gradient(rows, keys);
  }
  // d_logit_sums: the sum of d along each row, without rounding errors; null if it is not known.
  void close_rows(const RowTile& rows, const T* d_logit_sums) {
    if (gates_ != nullptr) gates_->close_rows(rows);
    if (traits_.table && gradients_->score_mod.table) close_tables(rows);
    if (scalar_count_ == 0) return;
    // Corrects a rounding error. With a softmax, dl = a (da - do.o) sums to a known value in every row: 0, or with a
    // sink the sink's share. Rounding of do.o and of the sum of weights shifts that sum. The shift is multiplied by
    // numbers of the row, which may be hundreds, and would limit the precision of their gradients. It is proportional
    // to the weights, so it is subtracted at the end, when the sums of dl and a are known.
    const double *const d = sums_, *const a = sums_ + tile_rows;
    for (std::int64_t n = 0; n < scalar_count_; ++n) {
      const double *const dx = sums_ + (2 + 2 * n) * tile_rows, *const ax = dx + tile_rows;
      for (std::int64_t i = 0; i < rows.rows; ++i) {
        const double sum = balanced(d_logit_sums, i, d[i], a[i], dx[i], ax[i]);
        if (n < traits_.rows) {
          d_rows_[n * tile_rows + i] = static_cast<T>(sum);
        } else {
          d_heads_[n - traits_.rows] += sum;
        }
      }
    }
    if (traits_.rows > 0 && gradients_->score_mod.rows) {
      unpack_lanes(gradients_->score_mod.rows, rows, traits_.rows, d_rows_, T{1});
    }
  }

 private:
  const ScoreModTileViews<T>& tile_at(const RowTile& rows, const KeyTile& keys) {
    tile_.rows = rows;
    tile_.keys = keys;
    return tile_;
  }
  void open_tables(const RowTile& rows) {
    const Matrix<T> given(call_.score_mod.table, rows.batch, rows.head);
    const std::int64_t step = given.column_step, entries = tile_.entries;
    if (gradients_ != nullptr) std::fill_n(tile_.d_table, tile_rows * tile_.ld, Entry<T>{});
    if (traits_.knots) {
      std::fill(tile_.table + rows.rows * tile_.ld, tile_.table + tile_rows * tile_.ld, Entry<T>{});
    } else {
      std::fill(tile_.values + rows.rows * tile_.ld, tile_.values + tile_rows * tile_.ld, T{0});
    }
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      const T* const source = &given.at(rows.first + i, 0);
      if (traits_.knots) {
        Entry<T>* const row = tile_.table + i * tile_.ld;
        for (std::int64_t n = 0; n < entries; ++n) row[n] = {source[2 * n * step], source[(2 * n + 1) * step]};
      } else {
        T* const row = tile_.values + i * tile_.ld;
        if (step == 1) {
          std::copy_n(source, entries, row);
        } else {
          for (std::int64_t n = 0; n < entries; ++n) row[n] = source[n * step];
        }
        row[entries] = row[entries - 1];
      }
    }
  }
  void close_tables(const RowTile& rows) const {
    const Matrix<T> d(gradients_->score_mod.table, rows.batch, rows.head);
    const std::int64_t step = d.column_step, entries = tile_.entries;
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      const Entry<T>* const row = tile_.d_table + i * tile_.ld;
      T* const target = &d.at(rows.first + i, 0);
      if (traits_.knots) {
        for (std::int64_t n = 0; n < entries; ++n) {
          target[2 * n * step] = row[n].low;
          target[(2 * n + 1) * step] = row[n].rise;
        }
      } else if (step == 1) {
        entry_gradients(target, row, entries);
      } else {
        T before = 0;
        for (std::int64_t n = 0; n < entries; ++n) {
          target[n * step] = row[n].low - row[n].rise + before;
          before = row[n].rise;
        }
      }
    }
  }
  // Whether all running sums are saturated: at or beyond the table's last entry.
  bool is_saturated(const RowTile& rows) const {
    const T last = static_cast<T>(tile_.entries - 1);
    return std::all_of(carry_, carry_ + rows.rows, [&](T sum) { return sum >= last; });
  }

  // Whether the gates' separate operands (p.gate_logit) are needed in the current tile.
  bool gates_count() const { return traits_.gate_logit && !saturated_; }

  static double balanced(const T* expected, std::int64_t row, double d, double a, double dx, double ax) {
    if (expected == nullptr || a == 0) return dx;
    return dx - (d - static_cast<double>(expected[row])) / a * ax;
  }

  const AttentionCall& call_;
  const AttentionGradients* gradients_;
  ScoreModTraits traits_;
  const ScoreModLoopsOf<T>& loops_;
  std::int64_t scalar_count_;
  GateOperands<T>* gates_;  // null: gates use the score itself
  ScoreModTileViews<T> tile_;
  T* d_rows_;
  double* sums_;
  double* d_heads_ = nullptr;
  bool saturated_ = false;
  std::int64_t saturated_keys_[tile_rows];  // by vector of rows
  alignas(64) T carry_[tile_rows];
  alignas(64) T run_[tile_rows];
};

}  // namespace tally::cpu
