// Contextual positions on one tile (CoPE, arXiv 2405.18719): p_ij = sum_{k=j..i} g_ik, l_ij = s_ij + term_i(p_ij).
//
// Forward walks the keys from right to left with the rows' running sums. Backward has them again from what forward kept
// at the tiles' edges, and walks from left to right with the running sums of d_p:
//   d_g_ik = sum_{j<=k} d_p_ij,  d_s_ij = d_l_ij + d_g_ij g_ij (1 - g_ij)
// Once every row of a tile has passed the last position of its table, the term is one number a row: no gates are needed
// there, and nothing flows back to them.
#include "core/attention/heads.hpp"
#include "core/cpu/attention_mlp_term.hpp"
#include "core/cpu/attention_terms.hpp"

namespace tally::cpu {

namespace {

template <class T, class Term>
class Contextual final : public ScanTile<T> {
 public:
  Contextual(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena)
      : call_(call),
        gradients_(gradients),
        term_(call, gradients, arena),
        own_(call.scan.gate_key),
        width_(own_ ? call.scan.gate_key.shape[3] : 0),
        ld_(gate_width<T>(call.scan)),
        gate_keys_(arena.take<T>(own_ ? call.keys() * width_ : 0)),
        gate_rows_(arena.take<T>(tile_rows * ld_)),
        gate_lanes_(arena.take<T>(tile_rows * width_)),
        gate_score_(arena.take<T>(own_ ? tile_keys * tile_rows : 0)),
        d_gate_lanes_(arena.take<T>(tile_rows * width_)),
        kept_(gradients != nullptr ? tile_keys * tile_rows : 0, arena) {}

  void open_head(std::int64_t batch, std::int64_t head, T* d_gate_key, double* shared) override {
    d_gate_key_ = d_gate_key;
    shared_ = shared;
    if (own_) {
      pack_rows(gate_keys_, width_, Matrix<T>(call_.scan.gate_key, batch, head / heads_of_key(call_)), 0, call_.keys(),
                width_, T{1}, call_.keys());
    }
  }

  void open_rows(const RowTile& rows) override {
    std::fill_n(carry_, tile_rows, T{0});
    std::fill_n(run_, tile_rows, T{0});
    term_.open_rows(rows, shared_);
    if (!own_) return;
    pack_rows(gate_rows_, ld_, Matrix<T>(call_.scan.gate_query, rows.batch, rows.head), rows.first, rows.rows, width_,
              static_cast<T>(call_.scale), tile_rows);
    transpose_to_lanes(gate_lanes_, gate_rows_, ld_, width_);
    std::fill_n(d_gate_lanes_, tile_rows * width_, T{0});
  }

  void add(const RowTile& rows, const KeyTile& keys, T* score, bool for_gradient) override {
    saturated_ = term_.saturated(carry_, rows);
    if (saturated_) return term_.add_saturated(rows, keys, score);
    if (own_) {
      lane_product(gate_score_, tile_rows, gate_keys_ + keys.first * width_, width_, 1, gate_lanes_, tile_rows,
                   keys.keys, rows.lanes, width_, false);
    }
    term_.add(rows, keys, score, own_ ? gate_score_ : score, carry_, kept_, for_gradient);
  }

  void gradient(const RowTile& rows, const KeyTile& keys, const T* weights, T* d) override {
    if (saturated_) return term_.saturated_gradient(rows, keys, d);
    T* const d_gate_score = own_ ? gate_score_ : d;
    term_.gradient(rows, keys, weights, d, d_gate_score, run_, kept_);
    if (!own_) return;
    lane_product(d_gate_lanes_, tile_rows, gate_keys_ + keys.first * width_, 1, width_, d_gate_score, tile_rows, width_,
                 rows.lanes, keys.keys, true);
    lane_product(d_gate_key_ + keys.first * ld_, ld_, d_gate_score, tile_rows, 1, gate_rows_, ld_, keys.keys, ld_,
                 rows.rows, true);
  }

  void close_rows(const RowTile& rows, const T* d_logit_sums) override {
    term_.close_rows(rows, d_logit_sums);
    if (own_ && gradients_->d_gate_query) {
      unpack_lanes(Matrix<T>(gradients_->d_gate_query, rows.batch, rows.head), rows.first, rows.rows, width_,
                   d_gate_lanes_, static_cast<T>(call_.scale));
    }
  }
  void write_shared(const SharedSums& sums) const override { term_.write_shared(sums); }

 private:
  const AttentionCall& call_;
  const AttentionGradients* gradients_;
  Term term_;
  bool own_;
  std::int64_t width_, ld_;  // of the gate operand
  T *gate_keys_, *gate_rows_, *gate_lanes_, *gate_score_, *d_gate_lanes_;
  Kept<T> kept_;
  T* d_gate_key_ = nullptr;
  double* shared_ = nullptr;
  bool saturated_ = false;
  using ScanTile<T>::carry_;
  alignas(64) T run_[tile_rows];
};

}  // namespace

template <class T>
ScanTile<T>* make_contextual(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena) {
  switch (call.scan.kind) {
    case AttentionScan::Kind::table: return arena.make<Contextual<T, TableTerm<T>>>(call, gradients);
    case AttentionScan::Kind::slope: return arena.make<Contextual<T, SlopeTerm<T>>>(call, gradients);
    case AttentionScan::Kind::mlp: return arena.make<Contextual<T, MlpTerm<T>>>(call, gradients);
    default: return nullptr;
  }
}

template ScanTile<float>* make_contextual(const AttentionCall&, const AttentionGradients*, Arena&);
template ScanTile<double>* make_contextual(const AttentionCall&, const AttentionGradients*, Arena&);

}  // namespace tally::cpu
