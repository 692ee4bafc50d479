// Turns the logits of a row tile into weights, key tile by key tile, in the layout of core/cpu/attention/tile.hpp
// (rules: SoftmaxRuleOperands<View>), and applies dropout.
//
// A row's sums have a shift M of their exponents: e^-M Z and e^-M o. Both are rescaled when M changes. With
// D_i = sum_j a_ij (da_ij - do.r_i) = do.o_i - do.r_i all rules have the same gradient:
//   dl_ij = (n'(l_ij) (da_ij - do.r_i) - m'(l_ij) D_i) / Z_i
#pragma once

#include "core/cpu/attention/partition.hpp"

namespace tally::cpu {

// The softmax_rule of one thread, for the current row tile.
template <class T>
class SoftmaxTile {
 public:
  using Kind = SoftmaxRuleOperands<View>::Kind;

  SoftmaxTile(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena);

  // Forward: open_rows, advance for each key tile, close_rows.
  void open_rows(const RowTile& rows);
  // Replaces the logits in `score` (-inf for masked pairs) by weights under the current shift, except perhaps above the
  // diagonal. If it returns true, the caller multiplies the output so far by rescale().
  bool advance(const RowTile& rows, const KeyTile& keys, T* score);
  const T* rescale() const { return rescale_; }
  // Writes the softmax statistics. taken: if not null, the leftover mass is e^-taken, which is more accurate than from
  // the weights.
  void close_rows(const RowTile& rows, const T* taken);

  // Backward: open_gradient with do [rows, ld], and r [rows, ld] or null; then weights and gradient for each key tile.
  // close_gradient adds to d_sink, the sum of the head.
  void open_gradient(const RowTile& rows, const T* d_output, const T* rest, std::int64_t ld, std::int64_t width);
  void weights(const RowTile& rows, const KeyTile& keys, T* score);
  // Turns d, the gradient of the weights (0 above the diagonal), into the gradient of the logits.
  void gradient(const RowTile& rows, const KeyTile& keys, T* d, const T* weight) const;
  void close_gradient(const RowTile& rows, double* d_sink) const;

  // For each row: 1 / Z under the shift, and the leftover mass, 1 - the sum of the weights.
  const T* inverse() const { return inverse_; }
  const T* leftover() const { return leftover_; }
  // The sum over keys of the gradients of a row's logits, without their rounding errors; null if it is not known.
  const T* d_logit_sums() const { return kind_ == Kind::softmax ? d_logit_sum_ : nullptr; }
  // A lower bound of every row's shift: weights are at most e^(l - M).
  T least_shift(const RowTile& rows) const { return *std::min_element(shift_, shift_ + rows.rows); }

 private:
  T* statistics(const RowTile& rows) const;

  const AttentionCall& call_;
  const AttentionGradients* gradients_;
  Kind kind_;
  T* slope_;  // backward, softpick: the tile's sign(l) e^l / Z
  alignas(64) T shift_[tile_rows];
  alignas(64) T sum_[tile_rows];      // forward: of m(l) e^-M so far
  alignas(64) T picked_[tile_rows];   // forward, softpick: of n(l) e^-M so far
  alignas(64) T rescale_[tile_rows];  // forward
  alignas(64) T inverse_[tile_rows];
  alignas(64) T leftover_[tile_rows];
  alignas(64) T d_leftover_[tile_rows];   // backward: do.r
  alignas(64) T d_row_[tile_rows];        // backward: D
  alignas(64) T delta_[tile_rows];        // backward: do.o
  alignas(64) T d_logit_sum_[tile_rows];  // backward
};

// Sets the logits of masked pairs to -inf.
template <class T>
void apply_mask(T* score, const RowTile rows, const KeyTile keys);

template <class T>
void scale_lanes(T* x, const T* factor, std::int64_t rows, std::int64_t lanes);

// mask = 1 / (1 - rate) for weights that are kept, else 0. `element` belongs to lane 0 and the tile's first key; rows
// are `row_step` elements apart.
template <class T>
void draw_dropout(T* mask, RandomStream stream, double rate, std::uint64_t element, std::uint64_t row_step,
                  std::int64_t keys, std::int64_t lanes);

// y = x mask
template <class T>
void apply_dropout(T* y, const T* x, const T* mask, std::int64_t keys, std::int64_t lanes);

}  // namespace tally::cpu
