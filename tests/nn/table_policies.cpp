// Policies of tests that read a table.
#include "autograd/pair.hpp"

namespace tally {
namespace {

struct Graded {
  static constexpr PairNeeds needs{.distance = true, .scan = true, .other = true, .table = true, .rows = 1};
  static constexpr auto gate(const auto& p) { return sigmoid(p.other) * softplus(row<0>(p)); }
  static constexpr auto place(const auto& p) { return row<0>(p) * p.distance + 3 * sigmoid(p.s) + 0.2 * p.sum; }
  static constexpr auto logit(const auto& p) { return p.s * (1 + 0.2 * p.entry) + 0.1 * p.entry * tanh(0.1 * p.sum); }
};

struct Binned {
  static constexpr PairNeeds needs{.distance = true, .adds = true, .table = true, .adds_entry = true, .heads = 1};
  static constexpr auto place(const auto& p) { return 2 * log(head<0>(p) * p.distance + 1.5); }
  static constexpr auto logit(const auto& p) { return p.s + p.entry; }
};

struct Bent {
  static constexpr PairNeeds needs{.distance = true, .table = true, .knots = true, .rows = 1, .heads = 1};
  static constexpr auto of_distance(const auto& p) { return log(exp(head<0>(p)) * p.distance + 1); }
  static constexpr auto place(const auto& p) { return row<0>(p) * p.of_distance + 2 * sigmoid(p.s); }
  static constexpr auto logit(const auto& p) { return p.s * (1 + 0.2 * p.entry) + 0.1 * p.entry; }
};

}  // namespace
}  // namespace tally

TALLY_PAIR(graded, Graded);
TALLY_PAIR(binned, Binned);
TALLY_PAIR(bent, Bent);

#ifndef TALLY_PAIR_ONLY

#include "tests/nn/pair_policies.hpp"

namespace tally::testing {

const PairPolicy& graded_policy() { return pair_graded; }
const PairPolicy& binned_policy() { return pair_binned; }
const PairPolicy& bent_policy() { return pair_bent; }

}  // namespace tally::testing

#endif
