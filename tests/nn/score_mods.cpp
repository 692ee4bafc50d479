// Score modifications of tests with sums along the keys, or none.
#include "autograd/score_mod.hpp"

namespace tally {
namespace {

struct Threshold {
  static constexpr int rows = 2;
  static constexpr auto gate(const auto& p) { return select(p.s > row<1>(p), 1, 0); }
  static constexpr auto logit(const auto& p) {
    return select(p.s > row<1>(p), p.s - row<0>(p) * p.sum, minus_infinity);
  }
};

struct Reading {
  static constexpr int rows = 2, heads = 2;
  static constexpr auto fading(const auto& p) { return exp(head<1>(p)) * p.distance / (p.distance + 5); }
  static constexpr auto gate_exclusive(const auto& p) {
    return sigmoid(p.gate_logit + row<1>(p)) * softplus(head<0>(p)) + 0.1 * sigmoid(p.s - fading(p));
  }
  static constexpr auto logit(const auto& p) {
    return 0.9 * p.s + row<0>(p) * tanh(0.1 * p.sum) - fading(p) + max(min(p.gate_logit, 2), -2) * 0.3;
  }
};

struct Bounded {
  static constexpr int heads = 1;
  static constexpr auto logit_after_biases(const auto& p) { return head<0>(p) * tanh(p.s / head<0>(p)); }
};

struct Divided {
  static constexpr int rows = 1;
  static constexpr auto logit(const auto& p) { return p.s / row<0>(p) - p.distance / row<0>(p) * 0.01; }
};

struct Overruled {
  static constexpr int rows = 1;
  static constexpr auto logit_after_biases(const auto& p) { return row<0>(p) * p.distance * 0.1; }
};

struct Apart {
  static constexpr int rows = 1, heads = 1;
  static constexpr auto gate(const auto& p) { return sigmoid(p.gate_logit); }
  static constexpr auto logit(const auto& p) {
    return -exp(head<0>(p)) * p.distance * select(p.s > row<0>(p) - 100, 0.1, 0.05) - 0.02 * p.sum;
  }
};

}  // namespace
}  // namespace tally

TALLY_SCORE_MOD(threshold, Threshold);
TALLY_SCORE_MOD(reading, Reading);
TALLY_SCORE_MOD(bounded, Bounded);
TALLY_SCORE_MOD(divided, Divided);
TALLY_SCORE_MOD(overruled, Overruled);
TALLY_SCORE_MOD(apart, Apart);

#ifndef TALLY_SCORE_MOD_ONLY

#include "tests/nn/score_mods.hpp"

namespace tally::testing {

const ScoreMod& threshold_score_mod() { return score_mod_threshold; }
const ScoreMod& reading_score_mod() { return score_mod_reading; }
const ScoreMod& bounded_score_mod() { return score_mod_bounded; }
const ScoreMod& divided_score_mod() { return score_mod_divided; }
const ScoreMod& overruled_score_mod() { return score_mod_overruled; }
const ScoreMod& apart_score_mod() { return score_mod_apart; }

}  // namespace tally::testing

#endif
