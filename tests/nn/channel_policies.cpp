// Policies of tests with channels of queries and keys.
#include "autograd/pair.hpp"

namespace tally {
namespace {

struct Channelled {
  static constexpr PairNeeds needs{.distance = true,
                                   .scan = true,
                                   .own = false,
                                   .other = true,
                                   .rows = 1,
                                   .heads = 1,
                                   .channels = {.of_query = 3, .of_key = 2, .of_channel = 2}};
  static constexpr auto gate(const auto& p) { return sigmoid(p.other + row<0>(p)); }
  static constexpr auto term(const auto& p) {
    const auto angle = p.sum * of_channel<0>(p) + p.distance * of_channel<1>(p) * head<0>(p);
    return of_query<0>(p) * of_key<0>(p) * cos(angle) + of_query<1>(p) * sin(angle + of_key<1>(p)) +
           0.2 * tanh(of_query<2>(p) + of_key<0>(p)) * sigmoid(p.s + row<0>(p)) * p.other;
  }
  static constexpr auto logit(const auto& p) { return 0.9 * p.s + 2 * tanh(0.3 * p.terms) * softplus(head<0>(p)); }
};

struct Apart {
  static constexpr PairNeeds needs{
      .scan = true, .other = true, .rows = 1, .heads = 1, .channels = {.of_query = 1, .of_key = 1}};
  static constexpr auto gate(const auto& p) { return sigmoid(p.other); }
  static constexpr auto term(const auto& p) {
    return abs(of_query<0>(p) - of_key<0>(p)) * select(p.s > row<0>(p) - 100, 1, 0.5);
  }
  static constexpr auto logit(const auto& p) { return -exp(head<0>(p)) * p.terms - 0.02 * p.sum; }
};

struct Vectored {
  static constexpr PairNeeds needs{.adds = true, .rows = 1, .channels = {.of_query = 1, .of_key = 1}};
  static constexpr auto term(const auto& p) { return of_query<0>(p) * sin(of_key<0>(p)); }
  static constexpr auto logit(const auto& p) { return p.s + row<0>(p) * p.terms; }
};

}  // namespace
}  // namespace tally

TALLY_PAIR(channelled, Channelled);
TALLY_PAIR(apart, Apart);
TALLY_PAIR(vectored, Vectored);

#ifndef TALLY_PAIR_ONLY

#include "tests/nn/pair_policies.hpp"

namespace tally::testing {

const PairPolicy& channelled_policy() { return pair_channelled; }
const PairPolicy& apart_policy() { return pair_apart; }
const PairPolicy& vectored_policy() { return pair_vectored; }

}  // namespace tally::testing

#endif
