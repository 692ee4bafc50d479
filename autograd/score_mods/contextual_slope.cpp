// CoPE with ALiBi (arXiv 2405.18719, section 4): one slope a head times the contextual position.
#include "autograd/score_mod.hpp"

namespace tally {
namespace {

struct Slope {
  static constexpr int heads = 1;
  static constexpr auto gate(const auto& p) { return sigmoid(p.gate_logit); }
  static constexpr auto bias(const auto& p) { return head<0>(p) * p.sum; }
};

}  // namespace
}  // namespace tally

TALLY_SCORE_MOD(contextual_slope, Slope);

#ifndef TALLY_SCORE_MOD_ONLY

#include "autograd/score.hpp"

namespace tally {

AppliedScoreMod contextual_slope(const Tensor& slope, const Gates& gates) {
  return {&score_mod_contextual_slope, {}, unsqueeze(slope, 1), gates};
}

}  // namespace tally

#endif
