// The terms of contextual positions on one tile: what a row's table makes of a position; those of a hidden layer are in
// core/cpu/attention_mlp_term.hpp. Each walks the keys from right to left, forward with the running sums
// of the gates, and back from left to right with those of d_p. Only for core/cpu/attention_contextual.cpp.
#pragma once

#include <algorithm>

#include "core/attention/policies.hpp"
#include "core/cpu/attention_shapes.hpp"
#include "core/cpu/attention_sums.hpp"

namespace tally::cpu {

using attention::gate;
using attention::gate_slope;

// What backward needs of a tile, each [tile_keys, tile_rows].
template <class T>
struct Kept {
  T *gate, *position, *slope;  // slope: d term / d p
  Kept(std::int64_t count, Arena& arena)
      : gate(arena.take<T>(count)), position(arena.take<T>(count)), slope(arena.take<T>(count)) {}
};

// p += g for the next key, with what rounding loses kept beside the sum: positions of hundreds of gates stay as exact
// as their own type.
template <class T>
TALLY_INLINE T advance_position(T& sum, T& lost, T g) {
  const T next = sum + g;
  lost += (sum - next) + g;
  sum = next;
  return next + lost;
}

// A term that is never the same for all keys to the left.
template <class T>
struct NeverSaturated {
  bool saturated(const T*, const RowTile&) const { return false; }
  void add_saturated(const RowTile&, const KeyTile&, T*) const {}
  void saturated_gradient(const RowTile&, const KeyTile&, const T*) const {}
};

// --- table: term = z_i at min(p, P), linearly interpolated ---

// One entry of a row's table: its value and the way to the next. Both are read at once, and both gradients written.
template <class T>
struct Entry {
  T low, rise;
};

// Every lane reads at an address of its own. One element after the other, 64 bits at a time, that takes half as long as
// the gather instructions do; the compiler must not make those of it.
template <class T>
TALLY_INLINE void look_up(Entry<T>* found, const Entry<T>* table, const std::int32_t* at, std::int64_t lanes) {
  for (std::int64_t i = 0; i < lanes; ++i) found[i] = table[at[i]];
}

// table: rows of ld = P+1 entries, the last with rise 0.
template <class T, bool keep>
TALLY_CLONES void add_table_term(T* score, const T* gate_score, T* carry, const Entry<T>* table, std::int32_t ld,
                                 const RowTile rows, const KeyTile keys, T* kept_gate, T* kept_position,
                                 T* kept_slope) {
  const T last = static_cast<T>(ld - 1);
  alignas(64) std::int32_t at[tile_rows];
  alignas(64) T w[tile_rows];
  alignas(64) Entry<T> found[tile_rows];
  alignas(64) T lost[tile_rows] = {};
  for (std::int64_t j = keys.keys - 1; j >= 0; --j) {
    const Lanes seeing = keys.seeing(rows, j);
    const auto lanes = static_cast<std::int32_t>(rows.lanes);
    T* const s = score + j * tile_rows;
    const T* const gs = gate_score + j * tile_rows;
    T* const kg = kept_gate + (keep ? j * tile_rows : 0);
    T* const kp = kept_position + (keep ? j * tile_rows : 0);
    T* const ks = kept_slope + (keep ? j * tile_rows : 0);
#pragma omp simd
    for (std::int32_t i = 0; i < lanes; ++i) {
      const T g = seeing.hold(i) ? gate(gs[i]) : T{0};
      const T p = advance_position(carry[i], lost[i], g);
      const auto place = attention::place_in_table(p, last);
      at[i] = i * ld + place.low;
      w[i] = place.w;
      if constexpr (keep) {
        kg[i] = g;
        kp[i] = p;
      }
    }
    look_up(found, table, at, lanes);
#pragma omp simd
    for (std::int32_t i = 0; i < lanes; ++i) {
      s[i] += attention::interpolate(found[i].low, found[i].rise, w[i]);
      if constexpr (keep) ks[i] = found[i].rise;
    }
  }
  for (std::int64_t i = 0; i < tile_rows; ++i) carry[i] += lost[i];
}

// d: gradient of the logits, and of the scores afterwards; d_gate_score is d where gates see the score. d_table: sums
// of the gradients that reach an entry as the lower of two, and of their parts w that go to the next.
template <class T>
TALLY_CLONES void table_gradient(T* d, T* d_gate_score, T* run, Entry<T>* d_table, std::int32_t ld, const RowTile rows,
                                 const KeyTile keys, const T* kept_gate, const T* kept_position, const T* kept_slope) {
  const T last = static_cast<T>(ld - 1);
  const bool own = d != d_gate_score;
  alignas(64) std::int32_t at[tile_rows];
  alignas(64) Entry<T> added[tile_rows];
  for (std::int64_t j = 0; j < keys.keys; ++j) {
    const auto lanes = static_cast<std::int32_t>(rows.lanes);
    T* const row = d + j * tile_rows;
    T* const gate_row = d_gate_score + j * tile_rows;
    const T* const kg = kept_gate + j * tile_rows;
    const T* const kp = kept_position + j * tile_rows;
    const T* const ks = kept_slope + j * tile_rows;
#pragma omp simd
    for (std::int32_t i = 0; i < lanes; ++i) {
      const T d_logit = row[i];
      const auto place = attention::place_in_table(kp[i], last);
      at[i] = i * ld + place.low;
      added[i].low = d_logit;
      added[i].rise = place.w * d_logit;
      run[i] += d_logit * ks[i];
      gate_row[i] = (own ? T{0} : d_logit) + run[i] * gate_slope(kg[i]);
    }
    for (std::int32_t i = 0; i < lanes; ++i) {
      Entry<T>& entry = d_table[at[i]];
      entry = {entry.low + added[i].low, entry.rise + added[i].rise};
    }
  }
}

template <class T>
TALLY_CLONES void add_to_rows(T* score, const T* value, std::int64_t keys, std::int64_t lanes) {
  for (std::int64_t j = 0; j < keys; ++j) {
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) score[j * tile_rows + i] += value[i];
  }
}

template <class T>
class TableTerm {
 public:
  TableTerm(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena)
      : call_(call),
        gradients_(gradients),
        ld_(static_cast<std::int32_t>(call.scan.values.shape[3])),
        table_(arena.take<Entry<T>>(tile_rows * ld_)),
        d_table_(arena.take<Entry<T>>(gradients != nullptr ? tile_rows * ld_ : 0)) {}

  void open_rows(const RowTile& rows, double*) {
    std::fill(table_ + rows.rows * ld_, table_ + tile_rows * ld_, Entry<T>{});
    const Matrix<T> z(call_.scan.values, rows.batch, rows.head);
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      const T* const source = &z.at(rows.first + i, 0);
      Entry<T>* const row = table_ + i * ld_;
      for (std::int64_t n = 0; n < ld_; ++n) {
        const T low = source[n * z.column_step];
        row[n] = {low, n + 1 < ld_ ? source[(n + 1) * z.column_step] - low : T{0}};
      }
    }
    for (std::int64_t i = 0; i < tile_rows; ++i) last_[i] = table_[(i + 1) * ld_ - 1].low;
    if (gradients_ != nullptr) std::fill_n(d_table_, tile_rows * ld_, Entry<T>{});
  }
  // Whether no position to the left of here is below the table's last.
  bool saturated(const T* carry, const RowTile& rows) const {
    const T last = static_cast<T>(ld_ - 1);
    return std::all_of(carry, carry + rows.rows, [&](T p) { return p >= last; });
  }
  void add_saturated(const RowTile& rows, const KeyTile& keys, T* score) const {
    add_to_rows(score, last_, keys.keys, rows.lanes);
  }
  void saturated_gradient(const RowTile& rows, const KeyTile& keys, const T* d) const {
    T sum[tile_rows] = {};
    add_keys(sum, d, keys.keys, rows.lanes);
    for (std::int64_t i = 0; i < rows.lanes; ++i) d_table_[(i + 1) * ld_ - 1].low += sum[i];
  }
  void add(const RowTile& rows, const KeyTile& keys, T* score, const T* gate_score, T* carry, const Kept<T>& kept,
           bool keep) const {
    if (keep) {
      add_table_term<T, true>(score, gate_score, carry, table_, ld_, rows, keys, kept.gate, kept.position, kept.slope);
    } else {
      add_table_term<T, false>(score, gate_score, carry, table_, ld_, rows, keys, nullptr, nullptr, nullptr);
    }
  }
  void gradient(const RowTile& rows, const KeyTile& keys, const T*, T* d, T* d_gate_score, T* run,
                const Kept<T>& kept) const {
    table_gradient(d, d_gate_score, run, d_table_, ld_, rows, keys, kept.gate, kept.position, kept.slope);
  }
  void close_rows(const RowTile& rows, const T*) {
    if (!gradients_->d_values) return;
    const Matrix<T> d_z(gradients_->d_values, rows.batch, rows.head);
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      const Entry<T>* const row = d_table_ + i * ld_;
      T* const target = &d_z.at(rows.first + i, 0);
      T before = 0;
      for (std::int64_t n = 0; n < ld_; ++n) {
        target[n * d_z.column_step] = row[n].low - row[n].rise + before;
        before = row[n].rise;
      }
    }
  }
  void write_shared(const SharedSums&) const {}

 private:
  const AttentionCall& call_;
  const AttentionGradients* gradients_;
  std::int32_t ld_;            // P+1
  Entry<T>*table_, *d_table_;  // [tile_rows, ld]
  alignas(64) T last_[tile_rows];
};

}  // namespace tally::cpu
