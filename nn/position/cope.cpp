// Contextual position encoding (CoPE, arXiv 2405.18719, equations 3 to 5, with the errata of nn/position/errata.md):
// gates decide which tokens count as a step of position. For one head, query i, keys j <= i:
//
//   s_ij = q_i.k_j / sqrt(d);
//   g_ij = sigmoid(s_ij)                       or sigmoid(q_i.G_j / sqrt(d)) with separate gate keys G;
//   p_ij = sum_{k=j..i} g_ik                   including the token itself;
//   z_i[n] = q_i.e[n],  n = 0..P;
//   l_ij = s_ij + (1-w) z_i[f] + w z_i[f+1],   c = min(p_ij, P), f = floor(c), w = c - f.
//
// If all gates are 1, this is relative encoding shifted by one row: p_ij = i-j+1. The table starts at zero, so the
// first step does not change the gates.
#include "autograd/ops.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/shared_parts.hpp"

namespace tally {
namespace {

struct CopeOptions final : OptionsOf<CopeOptions> {
  std::int64_t p_max = 64;
  std::string position_scale = "none";
  std::string share = "heads";
  ContextualGateOptions gates;

  void visit(OptionVisitor& visitor) override {
    visitor.integer("p-max", p_max, "largest position P; the table has P+1 rows", 1, 1 << 20);
    visitor.choice("position-scale", position_scale, {"none", "sqrt-d"},
                   "z = q.e as in the paper's listing, or divided by sqrt(d) as in the released code");
    visitor.choice("share", share, {"heads", "layers", "none"},
                   "one table per layer for all heads, one for all layers, or one per head");
    gates.visit(visitor);
  }
};

class Cope final : public Encoding {
 public:
  Cope(const EncodingSetup& setup, const CopeOptions& options)
      : scaled_(options.position_scale == "sqrt-d"),
        table_(setup.parameter("table", table_shape(setup, options), Fill::constant(0),
                               options.share == "layers" ? Scope::model : Scope::layer)),
        gates_(setup, options.gates) {}

  void score(const AttentionInput& in, Score& score) const override {
    const Tensor by_head = unsqueeze(table_.rank() == 2 ? unsqueeze(table_, 0) : table_, 0);
    const Tensor z = products_of_rows(gates_.query(in), by_head, scaled_ ? in.scale : 1.0);
    score.add_score_mod(contextual_table(z, gates_(in)));
  }

 private:
  static Shape table_shape(const EncodingSetup& setup, const CopeOptions& options) {
    const std::int64_t rows = options.p_max + 1;
    return options.share == "none" ? Shape{setup.heads, rows, setup.head_width} : Shape{rows, setup.head_width};
  }

  bool scaled_;
  Tensor table_;  // [P+1, d] or [H, P+1, d]
  ContextualGates gates_;
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(cope, CopeOptions, Cope, "contextual positions: gates decide which tokens count",
               "g_ij = sigmoid(s_ij);  p_ij = sum_{k=j..i} g_ik;  c = min(p_ij, P), f = floor(c), w = c - f\n"
               "l_ij = s_ij + (1-w) q_i.e[f] + w q_i.e[min(f+1, P)];  e [P+1, d]\n"
               "not the clipped RoPE of 2026 that has the same name (arXiv 2602.05258): rope with frequencies = clip",
               "CoPE: Golovneva et al. 2024, arXiv 2405.18719", .reads_heads = false, .companion = true);
