// Selective RoPE (arXiv 2511.17388, figure 9, for softmax attention): q and k are rotated by angles that the tokens
// choose, summed from the start of the text.
//   φ_t = conv(W_h q_t / |q_t|),  g_t = sigmoid(w_h.x_t / |x_t| + b_h);
//   angle_p(t) = τ_p sum_{m<=t} g_m φ_m,p,  τ_p = base^(-2p/d);  pairs (2p, 2p+1).
// conv is a causal depthwise convolution over the last 4 tokens; norms have 1e-6 under the root. The paper does not
// print initial values of W and conv. Here W is N(0, 1/d), and conv begins like a linear layer. Heads that share keys
// share one angle, from the first of these heads.
#include <cmath>
#include <vector>

#include "autograd/ops.hpp"
#include "autograd/recompute.hpp"
#include "nn/attention/attention.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/rotary.hpp"
#include "nn/layers/layer_parts.hpp"

namespace tally {
namespace {

constexpr std::int64_t taps = 4;

struct SelectiveRopeOptions final : OptionsOf<SelectiveRopeOptions> {
  double base = 500000;
  std::string temperature = "fixed";
  bool phase_gate = true;

  void visit(OptionVisitor& visitor) override {
    visitor.real("base", base, "base of the temperatures τ", 1);
    visitor.choice("temperature", temperature, {"fixed", "learned"}, "fixed or learned τ");
    visitor.flag("phase-gate", phase_gate, "use the gate g; without it g = 1");
  }
};

// x / |x| over the last axis.
Tensor unit(const Tensor& x) { return x / sqrt(sum(square(x), {-1}, true) + 1e-6); }

class SelectiveRope final : public Encoding {
 public:
  SelectiveRope(const EncodingSetup& setup, const SelectiveRopeOptions& options)
      : key_heads_(setup.key_heads), pairs_(setup.head_width / 2) {
    const std::int64_t d = setup.head_width;
    const std::vector<double> fixed = rotary_angles("selective-rope", d, options.base);
    angle_ =
        setup.parameter("angle.weight", {key_heads_, pairs_, d}, Fill::normal(1 / std::sqrt(static_cast<double>(d))));
    conv_ = setup.parameter("conv.weight", {key_heads_, pairs_, taps}, setup.start->linear_weight(taps));
    if (options.phase_gate) {
      gate_weight_ = setup.parameter("gate.weight", {key_heads_, setup.width}, setup.start->linear_weight(setup.width));
      gate_bias_ = setup.parameter("gate.bias", {key_heads_}, setup.start->linear_bias(setup.width));
    }
    temperature_ = options.temperature == "learned" ? setup.parameter("temperature", {pairs_}, Fill::list(fixed))
                                                    : Tensor::from(fixed, {pairs_}, setup.device).to(setup.dtype);
  }

  void rotate(Tensor& q, Tensor& k, Tensor&, const AttentionInput& in) const override {
    // Angles of keys come from the projected queries; backward recomputes the intermediates.
    const auto choose = [key_heads = key_heads_](const std::vector<Tensor>& x) {
      const Shape& s = x[0].shape();
      const Tensor first_heads =
          s[1] == key_heads ? x[0] : select(reshape(x[0], {s[0], key_heads, s[1] / key_heads, s[2], s[3]}), 2, 0);
      return std::vector{matmul(unit(first_heads), transpose(unsqueeze(x[1], 0), -1, -2))};
    };
    const Tensor chosen = recomputed("selective-rope", {in.q, angle_}, choose)[0];  // [B, G, T, d/2]
    std::vector<Tensor> of_phase{in.keep("phases", chosen, 2), conv_};
    if (gate_weight_.defined()) of_phase.insert(of_phase.end(), {in.x, gate_weight_, gate_bias_});
    const auto convolve = [queries = in.q.size(2)](const std::vector<Tensor>& x) {
      const Tensor phase = convolved(x[0], x[1], queries);
      if (x.size() == 2) return std::vector{phase};
      const Tensor gate = sigmoid(linear(unit(x[2]), x[3], x[4]));  // [B, T, G]
      return std::vector{phase * unsqueeze(transpose(gate, 1, 2), 3)};
    };
    const Tensor phase = recomputed("selective-rope", of_phase, convolve)[0];
    const Tensor kept = in.keep("turns", cast(phase, DType::f64), 2);
    const Tensor turned = transpose(cumsum(transpose(kept, 2, 3)), 2, 3);  // [B, G, keys, d/2]
    const Tensor own = slice(turned, 2, in.first, in.keys()) * cast(temperature_, DType::f64);
    q = turn_pairs(q, repeat_kv(own, q.size(1)), true);
    k = turn_pairs(k, own, true);
  }

 private:
  std::int64_t key_heads_, pairs_;
  Tensor angle_;                    // W [G, d/2, d]
  Tensor conv_;                     // [G, d/2, 4]
  Tensor gate_weight_, gate_bias_;  // w [G, D], b [G]
  Tensor temperature_;              // τ [d/2]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(selective_rope, SelectiveRopeOptions, SelectiveRope, "rotary, with angles computed from the tokens",
               "φ_t = conv(W_h q_t / |q_t|);  g_t = sigmoid(w_h.x_t / |x_t| + b_h)\n"
               "q_t, k_t turned by τ_p sum_{m<=t} g_m φ_m,p in the pairs (2p, 2p+1);  τ_p = base^(-2p/d)",
               "Selective RoPE: arXiv 2511.17388", .keys_follow_queries = true);
