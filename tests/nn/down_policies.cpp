// Policies of tests with sums down the queries.
#include "autograd/pair.hpp"

namespace tally {
namespace {

struct Reproached {
  static constexpr PairNeeds needs{
      .distance = true, .scan = true, .own = false, .down = true, .other = true, .rows = 2, .heads = 1};
  static constexpr auto gate(const auto& p) { return sigmoid(p.other) + 0.1 * softplus(row<1>(p)); }
  static constexpr auto down_gate(const auto& p) {
    const auto blame = softplus(p.other + row<1>(p)) * 0.1 + head<0>(p) * sigmoid(p.s);
    return select(p.distance > 0, blame, 0) * (1 / (p.distance + 1));
  }
  static constexpr auto logit(const auto& p) {
    return 0.9 * p.s + row<0>(p) * tanh(0.1 * p.sum) - 0.5 * p.down + head<0>(p) * tanh(p.down * p.s);
  }
};

struct Expelled {
  static constexpr PairNeeds needs{.down = true, .biased = true};
  static constexpr auto down_gate(const auto& p) { return relu(p.s); }
  static constexpr auto logit(const auto& p) { return select(p.down < 4, p.s - 0.1 * p.down, minus_infinity); }
};

struct Blamed {
  static constexpr PairNeeds needs{.distance = true, .down = true, .adds = true, .other = true};
  static constexpr auto down_gate(const auto& p) { return select(p.distance > 0, relu(p.other), 0); }
  static constexpr auto logit(const auto& p) { return p.s - p.down; }
};

}  // namespace
}  // namespace tally

TALLY_PAIR(reproached, Reproached);
TALLY_PAIR(expelled, Expelled);
TALLY_PAIR(blamed, Blamed);

#ifndef TALLY_PAIR_ONLY

#include "tests/nn/pair_policies.hpp"

namespace tally::testing {

const PairPolicy& reproached_policy() { return pair_reproached; }
const PairPolicy& expelled_policy() { return pair_expelled; }
const PairPolicy& blamed_policy() { return pair_blamed; }

}  // namespace tally::testing

#endif
