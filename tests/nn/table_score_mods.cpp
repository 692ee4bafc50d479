// Score modifications of tests that read a table.
#include "autograd/score_mod.hpp"

namespace tally {
namespace {

struct Graded {
  static constexpr int rows = 1;
  static constexpr auto gate(const auto& p) { return sigmoid(p.gate_logit) * softplus(row<0>(p)); }
  static constexpr auto position(const auto& p) { return row<0>(p) * p.distance + 3 * sigmoid(p.s) + 0.2 * p.sum; }
  static constexpr auto logit(const auto& p) { return p.s * (1 + 0.2 * p.entry) + 0.1 * p.entry * tanh(0.1 * p.sum); }
};

struct Binned {
  static constexpr int heads = 1;
  static constexpr auto position(const auto& p) { return 2 * log(head<0>(p) * p.distance + 1.5); }
  static constexpr auto bias(const auto& p) { return p.entry; }
};

struct Bent {
  static constexpr int rows = 1, heads = 1;
  static constexpr bool knots = true;
  static constexpr auto position(const auto& p) {
    return row<0>(p) * log(exp(head<0>(p)) * p.distance + 1) + 2 * sigmoid(p.s);
  }
  static constexpr auto logit(const auto& p) { return p.s * (1 + 0.2 * p.entry) + 0.1 * p.entry; }
};

}  // namespace
}  // namespace tally

TALLY_SCORE_MOD(graded, Graded);
TALLY_SCORE_MOD(binned, Binned);
TALLY_SCORE_MOD(bent, Bent);

#ifndef TALLY_SCORE_MOD_ONLY

#include "tests/nn/score_mods.hpp"

namespace tally::testing {

const ScoreMod& graded_score_mod() { return score_mod_graded; }
const ScoreMod& binned_score_mod() { return score_mod_binned; }
const ScoreMod& bent_score_mod() { return score_mod_bent; }

}  // namespace tally::testing

#endif
