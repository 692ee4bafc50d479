// Separate operands of gates on one tile: scale r_i.G_j next to the score, and its gradients. Without such operands
// gates use the score itself.
#pragma once

#include "core/attention/problem.hpp"
#include "core/cpu/attention/interfaces.hpp"
#include "core/cpu/attention/products.hpp"

namespace tally::cpu {

template <class T>
class GateOperands {
 public:
  GateOperands(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena)
      : call_(call),
        gradients_(gradients),
        given_(call.scan.gate_key),
        width_(given_ ? call.scan.gate_key.shape[3] : 0),
        ld_(round_up(width_, vector_lanes<T>)),
        products_(
            call.scan.gate_key, given_ ? call.keys() : 0,
            {.factor = call.scale, .by_keys = gradients != nullptr, .by_rows = gradients != nullptr, .reads_x = true},
            arena),
        score_(arena.take<T>(given_ ? tile_keys * tile_rows : 0)),
        d_lanes_(arena.take<T>(tile_rows * width_)) {}

  bool given() const { return given_; }

  void open_head(std::int64_t batch, std::int64_t head, T* d_gate_key) {
    d_key_ = d_gate_key;
    if (!given_) return;
    products_.open_keys(call_.scan.gate_key, batch, head / gqa_group_size(call_), {0, call_.keys()});
    finite_keys_ = are_finite(products_.x(), call_.keys() * width_);
  }
  void open_rows(const RowTile& rows) {
    if (!given_) return;
    products_.open_rows(call_.scan.gate_query, rows);
    finite_rows_ = are_finite(products_.y_rows(), tile_rows * ld_);
    std::fill_n(d_lanes_, tile_rows * width_, T{0});
  }
  // Whether the separate operands are finite. If not, gates may be NaN and must all be computed.
  bool finite() const { return finite_keys_ && finite_rows_; }
  // The tile of p.other: `score`, or the product of the separate operands.
  T* scores(const RowTile& rows, const KeyTile& keys, T* score) {
    if (!given_) return score;
    products_.pairs(rows, keys, score_);
    return score_;
  }
  // The gradient of that tile: the gradient of the scores, or a separate tile.
  T* d_scores(T* d_score) { return given_ ? score_ : d_score; }
  void add_gradient(const RowTile& rows, const KeyTile& keys) {
    if (!given_) return;
    products_.add_gradients(rows, keys, d_lanes_, d_key_, score_);
  }
  void close_rows(const RowTile& rows) {
    if (!given_ || !gradients_->scan.gate_query) return;
    unpack_lanes(Matrix<T>(gradients_->scan.gate_query, rows.batch, rows.head), rows.first, rows.rows, width_, d_lanes_,
                 products_.gradient_factor());
  }

 private:
  static bool are_finite(const T* x, std::int64_t count) {
    T zero = 0;
#pragma omp simd reduction(+ : zero)
    for (std::int64_t n = 0; n < count; ++n) zero += x[n] * T{0};
    return zero == 0;
  }

  const AttentionCall& call_;
  const AttentionGradients* gradients_;
  bool given_;
  std::int64_t width_, ld_;
  PairProducts<T> products_;
  T *score_, *d_lanes_;
  T* d_key_ = nullptr;
  bool finite_keys_ = true, finite_rows_ = true;
};

}  // namespace tally::cpu
