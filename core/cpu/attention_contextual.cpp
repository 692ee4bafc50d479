// Contextual positions on one tile (CoPE, arXiv 2405.18719): p_ij = sum_{k=j..i} g_ik, l_ij = s_ij + term_i(p_ij).
//
// Forward walks the keys from right to left with the rows' running sums. Backward has them again from what forward kept
// at the tiles' edges, and walks from left to right with the running sums of d_p:
//   d_g_ik = sum_{j<=k} d_p_ij,  d_s_ij = d_l_ij + d_g_ij g_ij (1 - g_ij)
// Once every row of a tile has passed the last position of its table, the term is one number a row: no gates are needed
// there, and nothing flows back to them.
#include "core/cpu/attention_gates.hpp"
#include "core/cpu/attention_mlp_term.hpp"
#include "core/cpu/attention_terms.hpp"

namespace tally::cpu {

namespace {

template <class T, class Term>
class Contextual final : public ScanTile<T> {
 public:
  Contextual(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena)
      : term_(call, gradients, arena),
        gates_(call, gradients, arena),
        kept_(gradients != nullptr ? tile_keys * tile_rows : 0, arena) {}

  void open_head(std::int64_t batch, std::int64_t head, T* d_gate_key, double* shared) override {
    shared_ = shared;
    gates_.open_head(batch, head, d_gate_key);
  }
  void open_rows(const RowTile& rows) override {
    std::fill_n(carry_, tile_rows, T{0});
    std::fill_n(run_, tile_rows, T{0});
    term_.open_rows(rows, shared_);
    gates_.open_rows(rows);
  }
  void add(const RowTile& rows, const KeyTile& keys, T* score, bool for_gradient) override {
    saturated_ = term_.saturated(carry_, rows);
    if (saturated_) return term_.add_saturated(rows, keys, score);
    term_.add(rows, keys, score, gates_.scores(rows, keys, score), carry_, kept_, for_gradient);
  }
  void gradient(const RowTile& rows, const KeyTile& keys, const T* weights, T* d) override {
    if (saturated_) return term_.saturated_gradient(rows, keys, d);
    term_.gradient(rows, keys, weights, d, gates_.d_scores(d), run_, kept_);
    gates_.add_gradient(rows, keys);
  }
  void close_rows(const RowTile& rows, const T* d_logit_sums) override {
    term_.close_rows(rows, d_logit_sums);
    gates_.close_rows(rows);
  }
  void write_shared(const SharedSums& sums) const override { term_.write_shared(sums); }

 private:
  Term term_;
  GateOperands<T> gates_;
  Kept<T> kept_;
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
    case AttentionScan::Kind::mlp: return arena.make<Contextual<T, MlpTerm<T>>>(call, gradients);
    default: return nullptr;
  }
}

template ScanTile<float>* make_contextual(const AttentionCall&, const AttentionGradients*, Arena&);
template ScanTile<double>* make_contextual(const AttentionCall&, const AttentionGradients*, Arena&);

}  // namespace tally::cpu
