// Multiplicative GRAPE in commuting planes (GRAPE-M, arXiv 2512.07805): rotary positions with learned frequencies, and
// with steps that depend on the tokens. Plane n of q and k at token t is turned by φ_t θ_n:
//   θ_n = e^a_n, n = 0 .. d/2-1, starting at base^(-2n/d) as in rope;
//   φ_t = t,  or  sum_{u<t} ω_u with one step ω for all heads:  ω_u = softplus(w.x_u + b)  or  sigmoid((w.x_u + b) /
//   16)
// w starts at 0, b at softplus^-1(0.001). The released code had softplus first and has sigmoid now: the steps then
// start at 0.39, with softplus at 0.001. It norms q and k after the rotation, and turns in the other direction, which
// changes nothing but the sign of half the dimensions.
#include <cmath>
#include <string>
#include <vector>

#include "autograd/ops.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/rotary.hpp"

namespace tally {
namespace {

struct GrapeMOptions final : OptionsOf<GrapeMOptions> {
  std::string steps = "one";
  std::string share = "heads";
  std::string layout = "half";
  double base = 10000;

  void visit(OptionVisitor& visitor) override {
    visitor.choice("steps", steps, {"one", "softplus", "sigmoid"},
                   "positions grow by 1 per token, or by a step that the token chooses");
    visitor.choice("share", share, {"heads", "layers", "none"},
                   "one set of frequencies per layer for all heads, one for all layers, or one per head of keys");
    visitor.choice("layout", layout, {"half", "interleaved"}, "dimensions of a plane: i and i + d/2, or 2i and 2i+1");
    visitor.real("base", base, "base of the initial frequencies", 1);
  }
};

class GrapeM final : public Encoding {
 public:
  GrapeM(const EncodingSetup& setup, const GrapeMOptions& options)
      : interleaved_(options.layout == "interleaved"), sigmoid_(options.steps == "sigmoid") {
    const std::int64_t sets = options.share == "none" ? setup.key_heads : 1;
    std::vector<double> start;
    for (std::int64_t n = 0; n < sets; ++n) {
      for (const double angle : rotary_angles("grape-m", setup.head_width, options.base))
        start.push_back(std::log(angle));
    }
    // A vector, even with several sets: weight decay of a matrix would pull all frequencies to 1.
    frequencies_ = setup.parameter("frequencies", {std::ssize(start)}, Fill::list(start),
                                   options.share == "layers" ? Scope::model : Scope::layer);
    if (options.steps == "one") return;
    weight_ = setup.parameter("step.weight", {1, setup.width}, Fill::constant(0));
    bias_ = setup.parameter("step.bias", {1}, Fill::constant(std::log(std::expm1(0.001))));
  }

  void rotate(Tensor& q, Tensor& k, Tensor&, const AttentionInput& in) const override {
    const std::int64_t pairs = q.size(3) / 2;
    const Shape sets{frequencies_.numel() / pairs, 1, pairs};
    const Tensor theta = reshape(exp(cast(frequencies_, DType::f64)), sets);
    const Tensor angles = unsqueeze(positions(in), 3) * theta;  // [1 or B, 1 or G, T, d/2]
    q = turn_pairs(q, angles.size(1) == 1 ? angles : repeat_kv(angles, q.size(1)), interleaved_);
    k = turn_pairs(k, angles, interleaved_);
  }

 private:
  // φ [1 or B, 1, T] f64
  Tensor positions(const AttentionInput& in) const {
    if (!weight_.defined()) return unsqueeze(unsqueeze(in.positions(), 0), 0);
    const Tensor chosen = linear(in.x, weight_, bias_);  // [B, T, 1]
    const Tensor step = sigmoid_ ? sigmoid(chosen * (1.0 / 16)) : softplus(chosen);
    const Tensor all = in.keep("steps", cast(transpose(step, 1, 2), DType::f64), 2);
    return slice(cumsum(all) - all, 2, in.first, in.keys());
  }

  bool interleaved_, sigmoid_;
  Tensor frequencies_;    // a [d/2], or [G d/2]
  Tensor weight_, bias_;  // w [1, D], b [1]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(grape_m, GrapeMOptions, GrapeM, "rotary, with learned frequencies and steps",
               "q_t, k_t turned by φ_t θ_n in plane n;  θ_n = e^a_n, initially base^(-2n/d), n = 0 .. d/2-1\n"
               "steps = one: φ_t = t;  softplus: φ_t = sum_{u<t} softplus(w.x_u + b);  "
               "sigmoid: φ_t = sum_{u<t} sigmoid((w.x_u + b) / 16)",
               "GRAPE-M: Zhang et al. 2025, arXiv 2512.07805");
