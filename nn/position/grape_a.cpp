// Additive GRAPE (GRAPE-A, arXiv 2512.07805): ALiBi's penalty on the distance, with a rate that the query, the key or
// both choose by a gate. For one head, query i, key j <= i, slopes m_h of ALiBi:
//   a_i = softplus(v_h.q_i / sqrt(d)),  c_j = softplus(u_h.k_j / sqrt(d)),  |u_h| = |v_h| = 1;
//   l_ij = s_ij - m_h softplus(w_h) (i-j) c_j       gate = key;  a_i for c_j with query, a_i + c_j with both
// q and k are as projected, not rotated; the released code applies it after norms of q and k (model.qk-norm = head).
// softplus(w_h) starts at 1, u and v at N(0, 1/d).
#include "autograd/score_mod.hpp"

namespace tally {
namespace {

// p.gate_logit is the sum of the gates of query and key, without 1/sqrt(d).
struct GatedPenalty {
  static constexpr int heads = 1;
  static constexpr auto bias(const auto& p) { return -head<0>(p) * p.distance * p.gate_logit; }
};

}  // namespace
}  // namespace tally

TALLY_SCORE_MOD(grape_a, GatedPenalty);

#ifndef TALLY_SCORE_MOD_ONLY

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/ops.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/shared_parts.hpp"

namespace tally {
namespace {

struct GrapeAOptions final : OptionsOf<GrapeAOptions> {
  std::string gate = "key";

  void visit(OptionVisitor& visitor) override {
    visitor.choice("gate", gate, {"key", "query", "both"}, "the gate that multiplies the penalty, or the sum of both");
  }
};

class GrapeA final : public Encoding {
 public:
  GrapeA(const EncodingSetup& setup, const GrapeAOptions& options)
      : slopes_(Tensor::from(alibi_slopes(setup.heads), {setup.heads}, setup.device).to(setup.dtype)),
        rate_(setup.parameter("rate", {setup.heads}, Fill::constant(std::log(std::expm1(1.0))))) {
    const auto direction = [&](std::string_view name, std::int64_t heads) {
      const double deviation = 1 / std::sqrt(static_cast<double>(setup.head_width));
      return setup.parameter(name, {heads, setup.head_width}, Fill::normal(deviation));
    };
    if (options.gate != "key") query_ = direction("query", setup.heads);
    if (options.gate != "query") key_ = direction("key", setup.key_heads);
  }

  void score(const AttentionInput& in, Score& score) const override {
    // Sums of the gates as products: [a_i, 1].[1, c_j].
    std::vector<Tensor> of_query, of_key;
    const Tensor one = Tensor::full({1}, 1, in.dtype(), in.q.device());
    const auto ones = [&](const Tensor& rows) {
      return broadcast_to(one, {rows.size(0), rows.size(1), rows.size(2), 1});
    };
    if (query_.defined()) {
      of_query.push_back(gate(in.q, query_, in.scale));
      of_key.push_back(ones(in.k));
    }
    if (key_.defined()) {
      of_query.push_back(ones(in.q));
      of_key.push_back(gate(in.k, key_, in.scale));
    }
    const Tensor gate_keys = in.keep("gates of keys", concat(of_key, 3), 2);
    const Tensor rates = slopes_ * softplus(rate_) * (1 / in.scale);
    score.add_score_mod(AppliedScoreMod{
        .mod = &score_mod_grape_a, .heads = unsqueeze(rates, 1), .gates = {concat(of_query, 3), gate_keys}});
  }

 private:
  // softplus(u_h.x_t / |u_h| scale) [B, h, T, 1] of rows x [B, h, T, d] and u [h, d]
  static Tensor gate(const Tensor& rows, const Tensor& direction, double scale) {
    const Tensor unit = direction / sqrt(sum(square(direction), {-1}, true) + 1e-14);
    return softplus(matmul(rows, unsqueeze(unsqueeze(unit, 2), 0), scale));
  }

  Tensor slopes_, rate_;  // m, w [H]
  Tensor query_, key_;    // v [H, d], u [G, d]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(grape_a, GrapeAOptions, GrapeA, "a penalty on the distance, at a rate that gates of q and k choose",
               "l_ij = s_ij - m_h softplus(w_h) (i-j) g_ij;  m_h as in alibi;  gate = key: g_ij = c_j\n"
               "gate = query: g_ij = a_i;  gate = both: g_ij = a_i + c_j\n"
               "a_i = softplus(v_h.q_i / (|v_h| sqrt(d)));  c_j = softplus(u_h.k_j / (|u_h| sqrt(d)))",
               "GRAPE-A: Zhang et al. 2025, arXiv 2512.07805", .reads_distances = true);

#endif
