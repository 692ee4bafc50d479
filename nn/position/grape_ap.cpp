// Additive GRAPE along the path (GRAPE-AP, arXiv 2512.07805): the penalty of a pair is a sum over the tokens between
// key and query, and each term compares the query with one of these tokens. For one head, query i, key j <= i, slopes
// m_h of ALiBi, p_t = W_h x_t of w numbers:
//   ψ_ik = m_h log sigmoid(p_i.R(k) p̂_k / w),  p̂ = p / sqrt(mean(p²));
//   l_ij = s_ij + sum_{k=j+1..i} ψ_ik
// R(k) turns all planes (n, n + w/2) by the same angle: (a, b) -> (a cos k + b sin k, b cos k - a sin k). p_i itself is
// neither normed nor turned (the released code). Forgetting attention (fox) is the case in which ψ depends on k only.
//
// form = per-row: forget gates of queries and keys, from the key up to the token before the query:
//   l_ij = s_ij + sum_{k=j..i-1} log sigmoid(a_i.b_k / sqrt(w)),  a = W_a x, b = W_b x
// Heads that share keys share W_h and W_b: their gates belong to the keys.
#include "autograd/score_mod.hpp"

namespace tally {
namespace {

struct PathPenalty {
  static constexpr int heads = 1;
  static constexpr auto gate_exclusive(const auto& p) { return softplus(-p.gate_logit); }
  static constexpr auto bias(const auto& p) { return -head<0>(p) * p.sum; }
};
struct PerRowForgetting {
  static constexpr auto gate(const auto& p) { return select(p.distance > 0, softplus(-p.gate_logit), 0); }
  static constexpr auto bias(const auto& p) { return -p.sum; }
};

}  // namespace
}  // namespace tally

TALLY_SCORE_MOD(grape_ap, PathPenalty);
TALLY_SCORE_MOD(per_row_forgetting, PerRowForgetting);

#ifndef TALLY_SCORE_MOD_ONLY

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "nn/attention/attention.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/rotary.hpp"
#include "nn/encoding/shared_parts.hpp"

namespace tally {
namespace {

struct GrapeApOptions final : OptionsOf<GrapeApOptions> {
  std::string form = "turned";
  std::int64_t width = 8;

  void visit(OptionVisitor& visitor) override {
    visitor.choice("form", form, {"turned", "per-row"},
                   "gates of GRAPE-AP with turned keys, or forget gates of two projections without slopes");
    visitor.integer("width", width, "w, numbers per head that gates compare; even for turned", 1, 1 << 12);
  }
  void validate() const override {
    check(form != "turned" || width % 2 == 0, "grape-ap", "width = {} is odd, but form = turned turns pairs of numbers",
          width);
  }
};

class GrapeAp final : public Encoding {
 public:
  GrapeAp(const EncodingSetup& setup, const GrapeApOptions& options)
      : heads_(setup.heads), key_heads_(setup.key_heads), width_(static_cast<double>(options.width)) {
    if (options.form == "turned") {
      key_ = setup.linear_weight("path.weight", setup.key_heads * options.width);
      slopes_ = Tensor::from(alibi_slopes(setup.heads), {setup.heads, 1}, setup.device).to(setup.dtype);
      const std::vector<RotaryPlane> planes(static_cast<std::size_t>(options.width / 2), {.angle = -1});
      turn_.emplace(planes, 1, false, setup.max_length, setup.dtype, setup.device);
    } else {
      query_ = setup.linear_weight("query.weight", setup.heads * options.width);
      key_ = setup.linear_weight("key.weight", setup.key_heads * options.width);
    }
  }

  void score(const AttentionInput& in, Score& score) const override {
    const Tensor rows = split_heads(linear(in.x, key_), key_heads_);
    // Attention divides by sqrt(d), gates by w or sqrt(w).
    if (turn_.has_value()) {
      constexpr double least = 0x1p-23;  // the released code's, of f32
      const Tensor keys = in.keep("path", turn_->rotate(rms_norm(rows, least), in), 2);
      const Tensor queries = repeat_kv(rows, heads_) * (1 / (width_ * in.scale));
      score.add_score_mod(AppliedScoreMod{.mod = &score_mod_grape_ap, .heads = slopes_, .gates = {queries, keys}});
    } else {
      const Tensor queries = split_heads(linear(in.x, query_), heads_) * (1 / (std::sqrt(width_) * in.scale));
      score.add_score_mod(
          AppliedScoreMod{.mod = &score_mod_per_row_forgetting, .gates = {queries, in.keep("forget keys", rows, 2)}});
    }
  }

 private:
  std::int64_t heads_, key_heads_;
  double width_;
  Tensor query_, key_;          // W_a [H w, D], W_h or W_b [G w, D]
  Tensor slopes_;               // m [H, 1]
  std::optional<Rotary> turn_;  // R
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(grape_ap, GrapeApOptions, GrapeAp, "penalties add up over the tokens between key and query",
               "p_t = W_h x_t;  ψ_ik = m_h log sigmoid(p_i.R(k) p_k / (w sqrt(mean(p_k²))));  m_h as in alibi\n"
               "l_ij = s_ij + sum_{k=j+1..i} ψ_ik;  R(k) turns every plane by -k\n"
               "form = per-row: l_ij = s_ij + sum_{k=j..i-1} log sigmoid(a_i.b_k / sqrt(w)), a = W_a x, b = W_b x",
               "GRAPE-AP: Zhang et al. 2025, arXiv 2512.07805; per-row: x-transformers, PerRowDataDependentAlibi",
               .reads_heads = false);

#endif
