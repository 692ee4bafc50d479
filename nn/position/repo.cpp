// Context re-positioning (RePo, arXiv 2512.14391): rotary positions that each token chooses, one per head.
//   z_i = W_z (silu(W_g x_i) * (W_c x_i));  W_g, W_c [D/8, D], W_z [H, D/8], without biases
//   q_i, k_j of head h turned by z_i^h θ, z_j^h θ;  θ_p = base^(-2p/d), pairs (p, p + d/2)
// Positions are real numbers in any order. The authors continue a trained RoPE model and keep RoPE in the first layers
// (5 of 16, 10 of 32): option rope-layers. Heads that share keys share a position, so W_z is per key head.
#include <algorithm>
#include <optional>
#include <vector>

#include "autograd/ops.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/rotary.hpp"

namespace tally {
namespace {

struct RepoOptions final : OptionsOf<RepoOptions> {
  double base = 500000;
  std::int64_t hidden = 0;
  std::int64_t rope_layers = 0;

  void visit(OptionVisitor& visitor) override {
    visitor.real("base", base, "base of the geometric sequence of angles", 1);
    visitor.integer("hidden", hidden, "rows of W_g and W_c; 0: D/8", 0, 1 << 16);
    visitor.integer("rope-layers", rope_layers, "number of first layers that keep the token's index as its position");
  }
};

class Repo final : public Encoding {
 public:
  Repo(const EncodingSetup& setup, const RepoOptions& options) {
    if (setup.layer < options.rope_layers) {
      plain_.emplace(rotary_planes("repo", setup.head_width, options.base), 1, false, setup.max_length, setup.dtype,
                     setup.device);
      return;
    }
    const std::vector<double> angles = rotary_angles("repo", setup.head_width, options.base);
    angles_ = Tensor::from(angles, {std::ssize(angles)}, setup.device).to(setup.dtype);
    const std::int64_t hidden = options.hidden > 0 ? options.hidden : std::max<std::int64_t>(setup.width / 8, 1);
    gate_ = setup.linear_weight("gate.weight", hidden);
    content_ = setup.linear_weight("content.weight", hidden);
    position_ = setup.parameter("position.weight", {setup.key_heads, hidden}, setup.start->linear_weight(hidden));
  }

  void rotate(Tensor& q, Tensor& k, Tensor&, const AttentionInput& in) const override {
    if (plain_.has_value()) {
      q = plain_->rotate(q, in);
      k = plain_->rotate(k, in);
      return;
    }
    const Tensor z = linear(silu(linear(in.x, gate_)) * linear(in.x, content_), position_);  // [B, T, G]
    const Tensor angle = unsqueeze(transpose(z, 1, 2), 3) * angles_;                         // [B, G, T, d/2]
    q = turn_pairs(q, repeat_kv(angle, q.size(1)), false);
    k = turn_pairs(k, angle, false);
  }

 private:
  std::optional<Rotary> plain_;       // RoPE, in the first layers
  Tensor angles_;                     // θ [d/2]
  Tensor gate_, content_, position_;  // W_g, W_c [D/8, D], W_z [G, D/8]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(repo, RepoOptions, Repo, "rotary, by a position that each token chooses",
               "z_i = W_z (silu(W_g x_i) * (W_c x_i)), one per head;  q_i turned by z_i θ, k_j by z_j θ\n"
               "θ_p = base^(-2p/d);  the first rope-layers layers: z_i = i",
               "RePo: Li et al. 2025, arXiv 2512.14391");
