// A score modification on one tile. The loops over its pairs are in core/cpu/attention/score_mod_loops.hpp.
#include <algorithm>

#include "core/cpu/attention/gates.hpp"
#include "core/cpu/attention/interfaces.hpp"
#include "core/cpu/attention/score_mod_loops.hpp"

namespace tally::cpu {

namespace {

// The loops for the widest vectors that both the processor and the build support.
const ScoreModLoops& loops_of(const ScoreMod& mod) {
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

template <class T>
class ScoreModTile final : public ScanTile<T> {
 public:
  ScoreModTile(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena)
      : call_(call),
        gradients_(gradients),
        traits_(call.scan.mod->traits),
        loops_(loops_for<T>(*call.scan.mod)),
        scalar_count_(traits_.rows + traits_.heads),
        operands_(call, gradients, arena),
        packed_(arena.take<T>(tile_rows * traits_.rows)),
        row_scalars_(arena.take<T>(tile_rows * traits_.rows)),
        head_scalars_(arena.take<T>(traits_.heads)),
        entries_(!traits_.table  ? 0
                 : traits_.knots ? call.scan.knots.shape[0]
                                 : call.scan.table.shape[3]),
        ld_(entries_ + (looks_up() ? 1 : 0)),
        values_(arena.take<T>(looks_up() ? tile_rows * ld_ : 0)),
        table_(arena.take<Entry<T>>(traits_.knots ? tile_rows * ld_ : 0)),
        d_table_(arena.take<Entry<T>>(gradients != nullptr ? tile_rows * ld_ : 0)),
        diagonals_(arena.take<T>((1 + traits_.heads) * tile_diagonals)),
        kept_score_(arena.take<T>(gradients != nullptr ? tile_keys * tile_rows : 0)),
        kept_sum_(arena.take<T>(gradients != nullptr && traits_.sums ? tile_keys * tile_rows : 0)),
        kept_gate_slope_(arena.take<T>(gradients != nullptr && traits_.sums ? tile_keys * tile_rows : 0)),
        kept_entry_(
            arena.take<T>(gradients != nullptr && looks_up() && !traits_.adds_entry ? tile_keys * tile_rows : 0)),
        kept_slope_(arena.take<T>(gradients != nullptr && looks_up() ? tile_keys * tile_rows : 0)),
        d_rows_(arena.take<T>(gradients != nullptr ? tile_rows * traits_.rows : 0)),
        sums_(arena.take<double>(gradients != nullptr && scalar_count_ > 0 ? (2 + 2 * scalar_count_) * tile_rows : 0)) {
  }

  void open_head(std::int64_t batch, std::int64_t head, const ScoreModOperands<T*>& sums, double* shared) override {
    shared_ = shared;
    operands_.open_head(batch, head, sums.gate_key);
    const View& heads = call_.scan.heads;
    for (std::int64_t n = 0; n < traits_.heads; ++n) {
      head_scalars_[n] = heads.as<T>()[head * heads.strides[0] + n * heads.strides[1]];
    }
  }
  void open_rows(const RowTile& rows) override {
    std::fill_n(carry_, tile_rows, T{0});
    std::fill_n(run_, tile_rows, T{0});
    operands_.open_rows(rows);
    if (traits_.table) open_tables(rows);
    if (traits_.rows > 0) {
      pack_rows(packed_, traits_.rows, call_.scan.rows, rows.batch, rows.head, rows.first, rows.rows, traits_.rows,
                T{1}, tile_rows);
      transpose_to_lanes(row_scalars_, packed_, traits_.rows, traits_.rows);
    }
    if (gradients_ != nullptr && scalar_count_ > 0) std::fill_n(sums_, (2 + 2 * scalar_count_) * tile_rows, 0.0);
  }
  bool exhausted(const RowTile& rows) const override {
    return spends(call_) && skips_tiles() &&
           std::all_of(carry_, carry_ + rows.rows, [](T spent) { return spent > negligible_exponent<T>; });
  }
  void add(const RowTile& rows, const KeyTile& keys, T* score, bool for_gradient) override {
    saturated_ = traits_.saturates && operands_.finite() && is_saturated(rows);
    const T* const gate_logit = gates_count() ? operands_.scores(rows, keys, score) : nullptr;
    const auto add = for_gradient ? loops_.add_and_keep : loops_.add;
    add(views(rows, keys), score, gate_logit, carry_);
  }
  void gradient(const RowTile& rows, const KeyTile& keys, const T* weights, T* d) override {
    loops_.gradient(views(rows, keys), d, gates_count() ? operands_.d_scores(d) : d, weights, run_, sums_);
    if (gates_count()) operands_.add_gradient(rows, keys);
  }
  void close_rows(const RowTile& rows, const T* d_logit_sums) override {
    if (traits_.gate_logit) operands_.close_rows(rows);
    if (traits_.table && gradients_->scan.table) close_tables(rows);
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
          shared_[n - traits_.rows] += sum;
        }
      }
    }
    if (traits_.rows > 0 && gradients_->scan.rows) {
      unpack_lanes(Matrix<T>(gradients_->scan.rows, rows.batch, rows.head), rows.first, rows.rows, traits_.rows,
                   d_rows_, T{1});
    }
  }
  void write_shared(const SharedSums& sums) const override {
    const View& d_heads = gradients_->scan.heads;
    for (std::int64_t head = 0; head < sums.heads && d_heads; ++head) {
      for (std::int64_t n = 0; n < traits_.heads; ++n) {
        d_heads.as<T>()[head * d_heads.strides[0] + n * d_heads.strides[1]] = static_cast<T>(sums.of_head(head, n));
      }
    }
  }

 private:
  void open_tables(const RowTile& rows) {
    const Matrix<T> given(call_.scan.table, rows.batch, rows.head);
    if (traits_.knots) {
      std::fill(table_ + rows.rows * ld_, table_ + tile_rows * ld_, Entry<T>{});
    } else {
      std::fill(values_ + rows.rows * ld_, values_ + tile_rows * ld_, T{0});
    }
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      const T* const source = &given.at(rows.first + i, 0);
      const std::int64_t step = given.column_step;
      if (traits_.knots) {
        Entry<T>* const row = table_ + i * ld_;
        for (std::int64_t n = 0; n < entries_; ++n) row[n] = {source[2 * n * step], source[(2 * n + 1) * step]};
        continue;
      }
      T* const row = values_ + i * ld_;
      if (step == 1) {
        std::copy_n(source, entries_, row);
      } else {
        for (std::int64_t n = 0; n < entries_; ++n) row[n] = source[n * step];
      }
      row[entries_] = row[entries_ - 1];
    }
    if (gradients_ != nullptr) std::fill_n(d_table_, tile_rows * ld_, Entry<T>{});
  }
  void close_tables(const RowTile& rows) const {
    const Matrix<T> d(gradients_->scan.table, rows.batch, rows.head);
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      const Entry<T>* const row = d_table_ + i * ld_;
      T* const target = &d.at(rows.first + i, 0);
      const std::int64_t step = d.column_step;
      if (traits_.knots) {
        for (std::int64_t n = 0; n < entries_; ++n) {
          target[2 * n * step] = row[n].low;
          target[(2 * n + 1) * step] = row[n].rise;
        }
      } else if (step == 1) {
        entry_gradients(target, row, entries_);
      } else {
        T before = 0;
        for (std::int64_t n = 0; n < entries_; ++n) {
          target[n * step] = row[n].low - row[n].rise + before;
          before = row[n].rise;
        }
      }
    }
  }
  // Whether all running sums are saturated: at or beyond the table's last entry.
  bool is_saturated(const RowTile& rows) const {
    const T last = static_cast<T>(entries_ - 1);
    return std::all_of(carry_, carry_ + rows.rows, [&](T sum) { return sum >= last; });
  }

  bool looks_up() const { return traits_.table && !traits_.knots; }
  // Whether the gates' separate operands (p.gate_logit) are needed in the current tile.
  bool gates_count() const { return traits_.gate_logit && !saturated_; }

  static double balanced(const T* expected, std::int64_t row, double d, double a, double dx, double ax) {
    if (expected == nullptr || a == 0) return dx;
    return dx - (d - static_cast<double>(expected[row])) / a * ax;
  }

  ScoreModTileViews<T> views(const RowTile& rows, const KeyTile& keys) {
    return {rows,
            keys,
            row_scalars_,
            head_scalars_,
            values_,
            table_,
            d_table_,
            entries_,
            ld_,
            call_.scan.knots.as<T>(),
            diagonals_,
            kept_score_,
            kept_sum_,
            kept_gate_slope_,
            kept_entry_,
            kept_slope_,
            traits_.saturates && operands_.finite() ? saturated_keys_ : nullptr};
  }

  const AttentionCall& call_;
  const AttentionGradients* gradients_;
  ScoreModTraits traits_;
  const ScoreModLoopsOf<T>& loops_;
  std::int64_t scalar_count_;
  GateOperands<T> operands_;
  T *packed_, *row_scalars_, *head_scalars_;
  std::int64_t entries_;
  std::int64_t ld_;
  T* values_;                  // [tile_rows, ld]
  Entry<T>*table_, *d_table_;  // [tile_rows, ld]
  T* diagonals_;
  T *kept_score_, *kept_sum_, *kept_gate_slope_, *kept_entry_, *kept_slope_;
  T* d_rows_;
  double* sums_;
  double* shared_ = nullptr;
  using ScanTile<T>::carry_;
  using ScanTile<T>::saturated_;
  std::int64_t saturated_keys_[tile_rows];  // by vector of rows
  alignas(64) T run_[tile_rows];
};

}  // namespace

template <class T>
ScanTile<T>* make_score_mod(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena) {
  return arena.make<ScoreModTile<T>>(call, gradients);
}

template ScanTile<float>* make_score_mod(const AttentionCall&, const AttentionGradients*, Arena&);
template ScanTile<double>* make_score_mod(const AttentionCall&, const AttentionGradients*, Arena&);

}  // namespace tally::cpu
