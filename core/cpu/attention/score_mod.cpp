// A pair policy on one tile. The loops over its pairs are in core/cpu/attention/score_mod_loops.hpp.
#include <algorithm>

#include "core/attention/pair.hpp"
#include "core/cpu/attention/gates.hpp"
#include "core/cpu/attention/interfaces.hpp"
#include "core/cpu/attention/score_mod_loops.hpp"

namespace tally::cpu {

namespace {

// The loops for the widest vectors that both the processor and the build support.
const PairLoops& loops_of(const PairPolicy& policy) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  if (policy.loops_v4 != nullptr && __builtin_cpu_supports("x86-64-v4")) return *policy.loops_v4;
  if (policy.loops_v3 != nullptr && __builtin_cpu_supports("x86-64-v3")) return *policy.loops_v3;
#endif
  return *policy.loops;
}
template <class T>
const PairLoopsOf<T>& loops_for(const PairPolicy& policy) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return loops_of(policy).f32;
  } else {
    return policy.loops->f64;
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
class PairTile final : public ScanTile<T> {
 public:
  PairTile(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena)
      : call_(call),
        gradients_(gradients),
        needs_(call.scan.policy->needs),
        loops_(loops_for<T>(*call.scan.policy)),
        numbers_(needs_.rows + needs_.heads),
        operands_(call, gradients, arena),
        packed_(arena.take<T>(tile_rows * needs_.rows)),
        row_numbers_(arena.take<T>(tile_rows * needs_.rows)),
        head_numbers_(arena.take<T>(needs_.heads)),
        entries_(!needs_.table  ? 0
                 : needs_.knots ? call.scan.knots.shape[0]
                                : call.scan.table.shape[3]),
        ld_(entries_ + (looks_up() ? 1 : 0)),
        values_(arena.take<T>(looks_up() ? tile_rows * ld_ : 0)),
        table_(arena.take<Entry<T>>(needs_.knots ? tile_rows * ld_ : 0)),
        d_table_(arena.take<Entry<T>>(gradients != nullptr ? tile_rows * ld_ : 0)),
        diagonals_(arena.take<T>((1 + needs_.heads) * tile_diagonals)),
        kept_score_(arena.take<T>(gradients != nullptr ? tile_keys * tile_rows : 0)),
        kept_sum_(arena.take<T>(gradients != nullptr && needs_.scan ? tile_keys * tile_rows : 0)),
        kept_gate_slope_(arena.take<T>(gradients != nullptr && needs_.scan ? tile_keys * tile_rows : 0)),
        kept_entry_(
            arena.take<T>(gradients != nullptr && looks_up() && !needs_.adds_entry ? tile_keys * tile_rows : 0)),
        kept_rise_(arena.take<T>(gradients != nullptr && looks_up() ? tile_keys * tile_rows : 0)),
        d_rows_(arena.take<T>(gradients != nullptr ? tile_rows * needs_.rows : 0)),
        sums_(arena.take<double>(gradients != nullptr && numbers_ > 0 ? (2 + 2 * numbers_) * tile_rows : 0)) {}

  void open_head(std::int64_t batch, std::int64_t head, const PolicyOperands<T*>& sums, double* shared) override {
    shared_ = shared;
    operands_.open_head(batch, head, sums.gate_key);
    const View& heads = call_.scan.heads;
    for (std::int64_t n = 0; n < needs_.heads; ++n) {
      head_numbers_[n] = heads.as<T>()[head * heads.strides[0] + n * heads.strides[1]];
    }
  }
  void open_rows(const RowTile& rows) override {
    std::fill_n(carry_, tile_rows, T{0});
    std::fill_n(run_, tile_rows, T{0});
    operands_.open_rows(rows);
    if (needs_.table) open_tables(rows);
    if (needs_.rows > 0) {
      pack_rows(packed_, needs_.rows, call_.scan.rows, rows.batch, rows.head, rows.first, rows.rows, needs_.rows, T{1},
                tile_rows);
      transpose_to_lanes(row_numbers_, packed_, needs_.rows, needs_.rows);
    }
    if (gradients_ != nullptr && numbers_ > 0) std::fill_n(sums_, (2 + 2 * numbers_) * tile_rows, 0.0);
  }
  bool used_up(const RowTile& rows) const override {
    return needs_.spends && skips_tiles() &&
           std::all_of(carry_, carry_ + rows.rows, [](T spent) { return spent > negligible_exponent<T>; });
  }
  void add(const RowTile& rows, const KeyTile& keys, T* score, bool for_gradient) override {
    settled_ = needs_.settles && operands_.finite() && is_settled(rows);
    const T* const other = gates_count() ? operands_.scores(rows, keys, score) : nullptr;
    const auto add = for_gradient ? loops_.add_and_keep : loops_.add;
    add(views(rows, keys), score, other, carry_);
  }
  void gradient(const RowTile& rows, const KeyTile& keys, const T* weights, T* d) override {
    loops_.gradient(views(rows, keys), d, gates_count() ? operands_.d_scores(d) : d, weights, run_, sums_);
    if (gates_count()) operands_.add_gradient(rows, keys);
  }
  void close_rows(const RowTile& rows, const T* d_logit_sums) override {
    if (needs_.other) operands_.close_rows(rows);
    if (needs_.table && gradients_->scan.table) close_tables(rows);
    if (numbers_ == 0) return;
    // Corrects a rounding error. With a softmax, dl = a (da - do.o) sums to a known value in every row: 0, or with a
    // sink the sink's share. Rounding of do.o and of the sum of weights shifts that sum. The shift is multiplied by
    // numbers of the row, which may be hundreds, and would limit the precision of their gradients. It is proportional
    // to the weights, so it is subtracted at the end, when the sums of dl and a are known.
    const double *const d = sums_, *const a = sums_ + tile_rows;
    for (std::int64_t n = 0; n < numbers_; ++n) {
      const double *const dx = sums_ + (2 + 2 * n) * tile_rows, *const ax = dx + tile_rows;
      for (std::int64_t i = 0; i < rows.rows; ++i) {
        const double sum = balanced(d_logit_sums, i, d[i], a[i], dx[i], ax[i]);
        if (n < needs_.rows) {
          d_rows_[n * tile_rows + i] = static_cast<T>(sum);
        } else {
          shared_[n - needs_.rows] += sum;
        }
      }
    }
    if (needs_.rows > 0 && gradients_->scan.rows) {
      unpack_lanes(Matrix<T>(gradients_->scan.rows, rows.batch, rows.head), rows.first, rows.rows, needs_.rows, d_rows_,
                   T{1});
    }
  }
  void write_shared(const SharedSums& sums) const override {
    const View& d_heads = gradients_->scan.heads;
    for (std::int64_t head = 0; head < sums.heads && d_heads; ++head) {
      for (std::int64_t n = 0; n < needs_.heads; ++n) {
        d_heads.as<T>()[head * d_heads.strides[0] + n * d_heads.strides[1]] = static_cast<T>(sums.of_head(head, n));
      }
    }
  }

 private:
  void open_tables(const RowTile& rows) {
    const Matrix<T> given(call_.scan.table, rows.batch, rows.head);
    if (needs_.knots) {
      std::fill(table_ + rows.rows * ld_, table_ + tile_rows * ld_, Entry<T>{});
    } else {
      std::fill(values_ + rows.rows * ld_, values_ + tile_rows * ld_, T{0});
    }
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      const T* const source = &given.at(rows.first + i, 0);
      const std::int64_t step = given.column_step;
      if (needs_.knots) {
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
      if (needs_.knots) {
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
  bool is_settled(const RowTile& rows) const {
    const T last = static_cast<T>(entries_ - 1);
    return std::all_of(carry_, carry_ + rows.rows, [&](T sum) { return sum >= last; });
  }

  bool looks_up() const { return needs_.table && !needs_.knots; }
  // Whether the gates' separate operands (p.other) are needed in the current tile.
  bool gates_count() const { return needs_.other && !settled_; }

  static double balanced(const T* expected, std::int64_t row, double d, double a, double dx, double ax) {
    if (expected == nullptr || a == 0) return dx;
    return dx - (d - static_cast<double>(expected[row])) / a * ax;
  }

  PairTileViews<T> views(const RowTile& rows, const KeyTile& keys) {
    return {rows,
            keys,
            row_numbers_,
            head_numbers_,
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
            kept_rise_,
            needs_.settles && operands_.finite() ? settled_keys_ : nullptr};
  }

  const AttentionCall& call_;
  const AttentionGradients* gradients_;
  PairNeeds needs_;
  const PairLoopsOf<T>& loops_;
  std::int64_t numbers_;
  GateOperands<T> operands_;
  T *packed_, *row_numbers_, *head_numbers_;
  std::int64_t entries_;
  std::int64_t ld_;
  T* values_;                  // [tile_rows, ld]
  Entry<T>*table_, *d_table_;  // [tile_rows, ld]
  T* diagonals_;
  T *kept_score_, *kept_sum_, *kept_gate_slope_, *kept_entry_, *kept_rise_;
  T* d_rows_;
  double* sums_;
  double* shared_ = nullptr;
  using ScanTile<T>::carry_;
  using ScanTile<T>::settled_;
  std::int64_t settled_keys_[tile_rows];  // by vector of rows
  alignas(64) T run_[tile_rows];
};

}  // namespace

template <class T>
ScanTile<T>* make_pair(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena) {
  return arena.make<PairTile<T>>(call, gradients);
}

template ScanTile<float>* make_pair(const AttentionCall&, const AttentionGradients*, Arena&);
template ScanTile<double>* make_pair(const AttentionCall&, const AttentionGradients*, Arena&);

}  // namespace tally::cpu
