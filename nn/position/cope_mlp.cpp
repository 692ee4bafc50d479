// Contextual positions through a small network (arXiv 2405.18719, section 4, CoPE-MLP). For one head, query i, keys
// j <= i:
//   g_ij = sigmoid(s_ij),  p_ij = sum_{k=j..i} g_ik;
//   l_ij = s_ij + q_i.f(p_ij),  f(p) = W2 relu(w1 p + b1) + b2,  w1, b1 [N], W2 [d, N], b2 [d], shared by heads.
// f is never computed per pair. Between the kinks of its units, which all queries share, q_i.f(p) is linear. So each
// query has a table of N + 1 values and slopes, its products with the values and slopes of f. The term q_i.b2 is the
// same for all keys of a row: the softmax cancels it, and b2 gets only rounding errors as gradients. p is not clamped,
// so any length is possible. W2 and b2 start at zero: the first step does not change gates and w1, b1.
#include <optional>

#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/shared_parts.hpp"

namespace tally {
namespace {

struct CopeMlpOptions final : OptionsOf<CopeMlpOptions> {
  std::int64_t hidden = 64;
  std::string layers = "all";
  ContextualGateOptions gates;

  void visit(OptionVisitor& visitor) override {
    visitor.integer("hidden", hidden, "width N of the hidden layer", 1, 1 << 10);
    visitor.choice("layers", layers, {"all", "first"}, "layers with this encoding: all, or only layer 0");
    gates.visit(visitor);
  }
};

class CopeMlp final : public Encoding {
 public:
  CopeMlp(const EncodingSetup& setup, const CopeMlpOptions& options) {
    if (options.layers == "first") {
      check(setup.first_layer == 0, "cope-mlp",
            "layers = first is layer 0 alone, but cope-mlp acts from layer {} on: it would act nowhere; name it for "
            "layer 0, or choose layers = all",
            setup.first_layer);
      if (setup.layer > 0) return;
    }
    hidden_weight_ = setup.parameter("hidden.weight", {options.hidden}, Fill::uniform(-1, 1));
    hidden_bias_ = setup.parameter("hidden.bias", {options.hidden}, Fill::uniform(-1, 1));
    output_weight_ = setup.parameter("output.weight", {setup.head_width, options.hidden}, Fill::constant(0));
    output_bias_ = setup.parameter("output.bias", {setup.head_width}, Fill::constant(0));
    gates_.emplace(setup, options.gates);
  }

  void score(const AttentionInput& in, Score& score) const override {
    if (!gates_.has_value()) return;
    const Tensor& q = gates_->query(in);
    const HiddenSegments segments = hidden_segments(hidden_weight_, hidden_bias_);
    // f without b2 at each knot, and its slope behind it: all pairs of a row have q.b2, exactly.
    const Tensor table = transpose(matmul(output_weight_, segments.units), 0, 1);
    const Tensor of_rows = products_of_rows(q, unsqueeze(unsqueeze(table, 0), 0));
    score.add_score_mod(contextual_segments(of_rows, segments.knots, (*gates_)(in)));
    const Tensor row = select(matmul(to_f32(q), unsqueeze(output_bias_, 1)), 3, 0);
    score.biases.push_back(RowColumn{cast(row, DType::f64), {}});
  }

 private:
  std::optional<ContextualGates> gates_;  // none: no encoding in this layer
  Tensor hidden_weight_, hidden_bias_;    // w1, b1 [N]
  Tensor output_weight_, output_bias_;    // W2 [d, N], b2 [d]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(cope_mlp, CopeMlpOptions, CopeMlp, "contextual positions through a small network instead of a table",
               "g_ij = sigmoid(s_ij);  p_ij = sum_{k=j..i} g_ik;  l_ij = s_ij + q_i.f(p_ij)\n"
               "f(p) = W2 relu(w1 p + b1) + b2",
               "CoPE-MLP: Golovneva et al. 2024, arXiv 2405.18719", .reads_heads = false);
