// Polar coordinates (PoPE, arXiv 2509.10534): magnitudes carry the content of q and k, angles only the position.
//   s_ij = 1/sqrt(d) (sum_{c<r} softplus(q_ic) softplus(k_jc) cos((i-j) θ_c - δ_hc) + sum_{c>=r} q_ic k_jc)
//   θ_c = base^(-c/r), c = 0 .. r-1: one frequency per dim, where RoPE has one per pair of dims
//   δ [H, r] learned, clamped to [-2π, 0] after each update
//
// This is a product of vectors with r + d numbers: (u cos φ, u sin φ, rest), u = softplus of the first r dims. φ is
// i θ - δ for a query and j θ for a key. The paper's code has δ in the keys. The product is the same, but here heads
// that share their keys can differ.
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "autograd/ops.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/rotary.hpp"

namespace tally {
namespace {

struct PopeOptions final : OptionsOf<PopeOptions> {
  double base = 10000;
  std::int64_t rotary_dims = 0;
  std::string start = "zero";

  void visit(OptionVisitor& visitor) override {
    visitor.real("base", base, "base of the geometric sequence of angles", 1);
    visitor.integer("rotary-dims", rotary_dims, "r, dims of a head in polar form; 0: all", 0, 1 << 16);
    visitor.choice("start", start, {"zero", "uniform"}, "initial δ: 0, or uniform in [-2π, 0]");
  }
};

class Pope final : public Encoding {
 public:
  Pope(const EncodingSetup& setup, const PopeOptions& options)
      : dims_(rotated_dims("pope", options.rotary_dims, setup.head_width)),
        turns_(planes_of(dims_, options.base), 1, false, setup.max_length, setup.dtype, setup.device) {
    const Fill start = options.start == "zero" ? Fill::constant(0) : Fill::uniform(lowest, 0);
    delta_ = setup.parameter("delta", {setup.heads, dims_}, start);
  }

  void project() const override { clamp_parameter(delta_, lowest, 0); }

  void rotate(Tensor& q, Tensor& k, Tensor&, const AttentionInput& in) const override {
    const Tensor delta = unsqueeze(delta_, 1), of_q = magnitudes(q), of_k = magnitudes(k);
    q = turned(of_q * cos(delta), negate(of_q * sin(delta)), q, in);
    k = turned(of_k, Tensor::zeros(of_k.shape(), of_k.dtype(), of_k.device()), k, in);
  }

 private:
  static constexpr double lowest = -2 * std::numbers::pi;

  static std::vector<RotaryPlane> planes_of(std::int64_t dims, double base) {
    std::vector<RotaryPlane> planes;
    for (std::int64_t c = 0; c < dims; ++c) {
      planes.push_back({.angle = std::pow(base, -static_cast<double>(c) / static_cast<double>(dims))});
    }
    return planes;
  }

  Tensor magnitudes(const Tensor& x) const { return softplus(slice(x, 3, 0, dims_)); }

  // The pairs (a, b), turned by t θ, then the dims of x from r on.
  Tensor turned(const Tensor& a, const Tensor& b, const Tensor& x, const AttentionInput& in) const {
    std::vector<Tensor> parts{a, b};
    if (dims_ < x.size(3)) parts.push_back(slice(x, 3, dims_, x.size(3)));
    return turns_.rotate(concat(parts, 3), in);
  }

  std::int64_t dims_;  // r
  Rotary turns_;
  Tensor delta_;  // δ [H, r]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(
    pope, PopeOptions, Pope, "rotary, with magnitudes above 0 and one frequency per dim",
    "s_ij = 1/sqrt(d) (sum_{c<r} softplus(q_ic) softplus(k_jc) cos((i-j) θ_c - δ_hc) + sum_{c>=r} q_ic k_jc)\n"
    "θ_c = base^(-c/r);  δ [H, r] learned, clamped to [-2π, 0] after each update\n"
    "q and k of the score have r + d numbers per head",
    "PoPE: Gopalakrishnan et al. 2025, arXiv 2509.10534", .widens_heads = true);
