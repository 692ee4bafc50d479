// The same penalty on a distance that counts only keys with an open gate, which matter to the query.
//   g_ij = sigmoid(q_i.G_j / sqrt(d)),  G = x W_gᵀ;  p_ij = sum_{k=j..i} g_ik;  l_ij = s_ij - r_h p_ij
#include "autograd/score_mod.hpp"

namespace tally {
namespace {

struct CountedPenalty {
  static constexpr int heads = 1;
  static constexpr auto gate(const auto& p) { return sigmoid(p.gate_logit); }
  static constexpr auto bias(const auto& p) { return -head<0>(p) * p.sum; }
};

}  // namespace
}  // namespace tally

TALLY_SCORE_MOD(counted_penalty, CountedPenalty);

#ifndef TALLY_SCORE_MOD_ONLY

#include "autograd/ops.hpp"
#include "nn/attention/attention.hpp"
#include "nn/encoding/encoding.hpp"

namespace tally {
namespace {

class CountedDecay final : public Encoding {
 public:
  explicit CountedDecay(const EncodingSetup& setup)
      : key_heads_(setup.key_heads),
        rate_(setup.parameter("rate", {setup.heads, 1}, Fill::constant(0.1), Scope::layer)),
        gate_(setup.parameter("gate.weight", {setup.key_heads * setup.head_width, setup.width},
                              setup.start->linear_weight(setup.width), Scope::layer)) {}

  void score(const AttentionInput& in, Score& score) const override {
    // Gates look back at earlier tokens, so their keys are cached during generation.
    const Tensor gate_keys = in.keep("gate keys", split_heads(linear(in.x, gate_), key_heads_), 2);
    score.add_score_mod(AppliedScoreMod{.mod = &score_mod_counted_penalty, .heads = rate_, .gates = {in.q, gate_keys}});
  }

 private:
  std::int64_t key_heads_;
  Tensor rate_;  // r [H, 1]
  Tensor gate_;  // W_g [G d, D]: as keys, by head of keys
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(counted_decay, NoOptions, CountedDecay, "a learned penalty on the number of keys that count",
               "g_ij = sigmoid(q_i.G_j / sqrt(d));  p_ij = sum_{k=j..i} g_ik;  l_ij = s_ij - r_h p_ij", "none yet");

#endif
