// Policies of tests with sums along the keys, or none.
#include "autograd/pair.hpp"

namespace tally {
namespace {

struct Threshold {
  static constexpr PairNeeds needs{.scan = true, .rows = 2};
  static constexpr auto gate(const auto& p) { return select(p.s > row<1>(p), 1, 0); }
  static constexpr auto logit(const auto& p) {
    return select(p.s > row<1>(p), p.s - row<0>(p) * p.sum, minus_infinity);
  }
};

struct Reading {
  static constexpr PairNeeds needs{.distance = true, .scan = true, .own = false, .other = true, .rows = 2, .heads = 2};
  static constexpr auto gate(const auto& p) {
    return sigmoid(p.other + row<1>(p)) * softplus(head<0>(p)) + 0.1 * sigmoid(p.s - p.of_distance);
  }
  static constexpr auto of_distance(const auto& p) { return exp(head<1>(p)) * p.distance / (p.distance + 5); }
  static constexpr auto logit(const auto& p) {
    return 0.9 * p.s + row<0>(p) * tanh(0.1 * p.sum) - p.of_distance + max(min(p.other, 2), -2) * 0.3;
  }
};

struct Bounded {
  static constexpr PairNeeds needs{.biased = true, .heads = 1};
  static constexpr auto logit(const auto& p) { return head<0>(p) * tanh(p.s / head<0>(p)); }
};

struct Divided {
  static constexpr PairNeeds needs{.distance = true, .rows = 1};
  static constexpr auto logit(const auto& p) { return p.s / row<0>(p) - p.distance / row<0>(p) * 0.01; }
};

struct Overruled {
  static constexpr PairNeeds needs{.distance = true, .biased = true, .rows = 1};
  static constexpr auto logit(const auto& p) { return row<0>(p) * p.distance * 0.1; }
};

struct Apart {
  static constexpr PairNeeds needs{.distance = true, .scan = true, .other = true, .rows = 1, .heads = 1};
  static constexpr auto gate(const auto& p) { return sigmoid(p.other); }
  static constexpr auto logit(const auto& p) {
    return -exp(head<0>(p)) * p.distance * select(p.s > row<0>(p) - 100, 0.1, 0.05) - 0.02 * p.sum;
  }
};

}  // namespace
}  // namespace tally

TALLY_PAIR(threshold, Threshold);
TALLY_PAIR(reading, Reading);
TALLY_PAIR(bounded, Bounded);
TALLY_PAIR(divided, Divided);
TALLY_PAIR(overruled, Overruled);
TALLY_PAIR(apart, Apart);

#ifndef TALLY_PAIR_ONLY

#include "tests/nn/pair_policies.hpp"

namespace tally::testing {

const PairPolicy& threshold_policy() { return pair_threshold; }
const PairPolicy& reading_policy() { return pair_reading; }
const PairPolicy& bounded_policy() { return pair_bounded; }
const PairPolicy& divided_policy() { return pair_divided; }
const PairPolicy& overruled_policy() { return pair_overruled; }
const PairPolicy& apart_policy() { return pair_apart; }

}  // namespace tally::testing

#endif
