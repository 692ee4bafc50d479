// CARoPE (arXiv 2507.23083): rotary positions whose frequencies depend on the tokens. Each head of each token has one
// frequency, plane i uses its i-th power, and the rotation of a plane is the running sum of its powers.
//   f_t = 1 / (softplus(w_h.x_t + b_h) + 1),  φ_i(t) = sum_{m<=t} f_m^i,  i = 0 .. d/2-1;  q_t, k_t rotated by φ_i(t).
// Plane 0 rotates by one radian per token for any x. The paper says it starts as RoPE but prints no bias, without which
// f = 0.59 at w = 0; here softplus(b) = base^(2/d) - 1, which at w = 0 is exactly `rope`. Heads that share keys share a
// frequency: w is per key head.
#include <cmath>

#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "nn/attention/attention.hpp"
#include "nn/encoding/encoding.hpp"

namespace tally {
namespace {

struct CaropeOptions final : OptionsOf<CaropeOptions> {
  std::string start = "rope";
  std::string layout = "half";
  double base = 10000;

  void visit(OptionVisitor& visitor) override {
    visitor.choice("start", start, {"rope", "random"}, "initial w: 0 (equal to rope), or N(0, 0.02²)");
    visitor.choice("layout", layout, {"half", "interleaved"}, "dimensions of a plane: i and i + d/2, or 2i and 2i+1");
    visitor.real("base", base, "base of the initial frequencies", 1.001, 1e12);
  }
};

class Carope final : public Encoding {
 public:
  Carope(const EncodingSetup& setup, const CaropeOptions& options)
      : pairs_(setup.head_width / 2), interleaved_(options.layout == "interleaved") {
    check(setup.head_width % 2 == 0, "carope", "planes need an even head width, got {}", setup.head_width);
    const double opening = std::pow(options.base, 2.0 / static_cast<double>(setup.head_width)) - 1;
    weight_ = setup.parameter("frequency.weight", {setup.key_heads, setup.width},
                              options.start == "rope" ? Fill::constant(0) : Fill::normal(0.02));
    // The inverse of softplus; for large x it is x itself, to the last bit, long before e^x overflows.
    const double bias = opening > 100 ? opening : std::log(std::expm1(opening));
    bias_ = setup.parameter("frequency.bias", {setup.key_heads}, Fill::constant(bias));
  }

  void rotate(Tensor& q, Tensor& k, Tensor&, const AttentionInput& in) const override {
    const Tensor opened = cast(softplus(linear(in.x, weight_, bias_)), DType::f64);  // [B, T, G]
    const Tensor log_f = negate(log(transpose(opened, 1, 2) + 1.0));                 // [B, G, T]
    const Tensor all = in.keep("log frequencies", log_f, 2);
    const auto number = [](std::int64_t n) { return static_cast<double>(n); };
    const Tensor power = unsqueeze(in.constants->of(number, 0, pairs_, DType::f64, q.device()), 1);  // [d/2, 1]
    const Tensor angles = cumsum(exp(unsqueeze(all, 2) * power));  // [B, G, d/2, keys]
    const Tensor own = transpose(slice(angles, 3, in.first, in.keys()), 2, 3);
    q = turn_pairs(q, repeat_kv(own, q.size(1)), interleaved_);
    k = turn_pairs(k, own, interleaved_);
  }

 private:
  std::int64_t pairs_;
  bool interleaved_;
  Tensor weight_, bias_;  // w [G, D], b [G]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(carope, CaropeOptions, Carope, "rotary, with frequencies computed from the tokens",
               "f_t = 1 / (softplus(w_h.x_t + b_h) + 1);  φ_i(t) = sum_{m<=t} f_m^i;  q_t, k_t turned by φ_i(t)\n"
               "i = 0 .. d/2-1;  initially equal to rope: w = 0, softplus(b) = base^(2/d) - 1",
               "CARoPE: Veisi et al. 2025, arXiv 2507.23083");
