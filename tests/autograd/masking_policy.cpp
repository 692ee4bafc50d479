#include "autograd/pair.hpp"

namespace tally {
namespace {

struct Masking {
  static constexpr PairNeeds needs{.distance = true, .down = true, .heads = 1};
  static constexpr auto down_gate(const auto& p) { return select(p.distance > 0, 0.02 * sigmoid(p.s), 0); }
  static constexpr auto logit(const auto& p) { return p.s - head<0>(p) * p.down; }
};

}  // namespace
}  // namespace tally

TALLY_PAIR(masking, Masking);

#ifndef TALLY_PAIR_ONLY

#include "tests/autograd/masking_policy.hpp"

namespace tally::testing {

const PairPolicy& masking_policy() { return pair_masking; }

}  // namespace tally::testing

#endif
