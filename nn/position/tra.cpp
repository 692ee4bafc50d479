// Threshold relative attention (TRA, arXiv 2503.23174): keys whose score is not above 0 get no weight, and the distance
// counts only the other keys. q and k pass a norm without weights, over each head. For query i and key j <= i:
//   n_ij = #{ m : j <= m <= i, s_im > 0 };
//   delta_i = log sigmoid(w_h.x_i + b_h), one number per head and query, never above 0;
//   l_ij = s_ij + delta_i n_ij if s_ij > 0, else no weight; a row without a key gives o_i = 0.
// No gradient goes through the threshold.
#include "autograd/score_mod.hpp"

namespace tally {
namespace {

struct Tra {
  static constexpr int rows = 1;
  static constexpr auto gate(const auto& p) { return select(p.s > 0, 1, 0); }
  static constexpr auto logit(const auto& p) { return select(p.s > 0, p.s + row<0>(p) * p.sum, minus_infinity); }
};

}  // namespace
}  // namespace tally

TALLY_SCORE_MOD(tra, Tra);

#ifndef TALLY_SCORE_MOD_ONLY

#include "nn/encoding/encoding.hpp"
#include "nn/layers/layer_parts.hpp"

namespace tally {
namespace {

class ThresholdRelative final : public Encoding {
 public:
  explicit ThresholdRelative(const EncodingSetup& setup)
      : weight_(setup.linear_weight("threshold.weight", setup.heads)),
        bias_(setup.parameter("threshold.bias", {setup.heads}, Fill::constant(0))) {
    check_normed_heads(setup, "tra");
  }

  void rotate(Tensor& q, Tensor& k, Tensor&, const AttentionInput&) const override {
    q = rms_norm(q);
    k = rms_norm(k);
  }
  void score(const AttentionInput& in, Score& score) const override {
    const Tensor closing = transpose(linear(in.x, weight_, bias_), 1, 2);  // [B, H, T]
    score.add_score_mod(AppliedScoreMod{&score_mod_tra, negate(softplus(negate(unsqueeze(closing, 3))))});
  }

 private:
  Tensor weight_, bias_;  // w [H, D], b [H]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(tra, NoOptions, ThresholdRelative, "keys with a score below 0 are masked; distance counts the others",
               "n_ij = #{ m : j <= m <= i, s_im > 0 };  l_ij = s_ij + log sigmoid(w.x_i + b) n_ij where s_ij > 0",
               "TRA: Threshold relative attention, 2025, arXiv 2503.23174", .before_rotations = true);

#endif
