// Stick-breaking (arXiv 2410.17980): subtracts the mass that nearer keys and the key itself have taken, as a running
// sum over the biased logits. The result is never above 0, so the weights are e^l without a shift.
#include "autograd/score_mod.hpp"

namespace tally {
namespace {

struct Stick {
  static constexpr auto gate(const auto& p) { return select(p.distance > 0, softplus(p.s), 0); }
  static constexpr auto logit_after_biases(const auto& p) {
    return select(p.distance > 0, p.s - p.sum, minus_infinity);
  }
};
// A token is the first to take its own share.
struct StickWithCurrent {
  static constexpr auto gate(const auto& p) { return softplus(p.s); }
  static constexpr auto logit_after_biases(const auto& p) { return p.s - p.sum; }
};

}  // namespace
}  // namespace tally

TALLY_SCORE_MOD(stick_breaking, Stick);
TALLY_SCORE_MOD(stick_breaking_with_current, StickWithCurrent);

#ifndef TALLY_SCORE_MOD_ONLY

#include "autograd/score.hpp"

namespace tally {

AppliedScoreMod stick_breaking(bool attend_current) {
  return {attend_current ? &score_mod_stick_breaking_with_current : &score_mod_stick_breaking};
}

}  // namespace tally

#endif
