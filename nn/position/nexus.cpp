// A variant that is also called CoPE but is another method (nn/position/errata.md): gates of tokens, summed from the
// start of the text, so that a token has one position for all queries.
//   g_t = sigmoid(w_h.x_t + b_h),  p_t = sum_{u<=t} g_u;
//   l_ij = (q_i.k_j + (W_p q_i).e(p_j)) / sqrt(d),  e(p) interpolated in a table [P+1, d] at min(p, P).
// A token has a gate and an entry for each key head. In a combination, q.k remains the score that the other encoding's
// gates use.
#include "autograd/ops.hpp"
#include "nn/encoding/encoding.hpp"

namespace tally {
namespace {

struct NexusOptions final : OptionsOf<NexusOptions> {
  std::int64_t p_max = 64;

  void visit(OptionVisitor& visitor) override {
    visitor.integer("p-max", p_max, "largest position P; the table has P+1 rows", 1, 1 << 20);
  }
};

class Nexus final : public Encoding {
 public:
  Nexus(const EncodingSetup& setup, const NexusOptions& options) {
    const Fill start = Fill::normal(0.02);
    const std::int64_t d = setup.head_width;
    gate_weight_ = setup.parameter("gate.weight", {setup.key_heads, setup.width}, start);
    gate_bias_ = setup.parameter("gate.bias", {setup.key_heads}, Fill::constant(0));
    query_weight_ = setup.parameter("query.weight", {d, d}, start);
    table_ = setup.parameter("table", {options.p_max + 1, d}, start);
  }

  void score(const AttentionInput& in, Score& score) const override {
    const Tensor gates = transpose(sigmoid(linear(in.x, gate_weight_, gate_bias_)), 1, 2);  // [B, G, T]
    const Tensor positions = slice(cumsum(in.keep("gates", gates, 2)), 2, in.first, in.keys());
    score.biases.push_back(Product{linear(in.q, query_weight_), in.keep("entries", entries(positions), 2)});
  }

 private:
  // e(p) [B, G, T, d] at positions [B, G, T]: every column of the table is interpolated at all of them.
  Tensor entries(const Tensor& positions) const {
    const std::int64_t columns = table_.size(1);
    const Tensor places = reshape(contiguous(positions), {1, positions.numel()});
    const Tensor read = interpolate(transpose(table_, 0, 1), broadcast_to(places, {columns, positions.numel()}));
    return reshape(transpose(read, 0, 1), {positions.size(0), positions.size(1), positions.size(2), columns});
  }

  Tensor gate_weight_, gate_bias_;  // w [G, D], b [G]
  Tensor query_weight_;             // W_p [d, d]
  Tensor table_;                    // e [P+1, d]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(nexus, NexusOptions, Nexus, "positions are sums of token gates from the start: a variant, not CoPE",
               "g_t = sigmoid(w_h.x_t + b_h);  p_t = sum_{u<=t} g_u\n"
               "l_ij = (q_i.k_j + (W_p q_i).e(min(p_j, P))) / sqrt(d), interpolated;  e [P+1, d]",
               "a variant in circulation under CoPE's name, kept for comparison");
