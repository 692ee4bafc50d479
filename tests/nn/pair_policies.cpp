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

struct Columned {
  static constexpr PairNeeds needs{
      .distance = true, .down = true, .adds = true, .other = true, .channels = {.of_key = 2}};
  static constexpr auto down_gate(const auto& p) { return select(p.distance > 0, sigmoid(p.other), 0); }
  static constexpr auto term(const auto& p) { return of_key<0>(p) - 0.02 * p.down * of_key<1>(p); }
  static constexpr auto logit(const auto& p) { return p.s + p.terms; }
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

struct Overruled {
  static constexpr PairNeeds needs{.distance = true, .biased = true, .rows = 1};
  static constexpr auto logit(const auto& p) { return row<0>(p) * p.distance * 0.1; }
};

struct Vectored {
  static constexpr PairNeeds needs{.adds = true, .rows = 1, .channels = {.of_query = 1, .of_key = 1}};
  static constexpr auto term(const auto& p) { return of_query<0>(p) * sin(of_key<0>(p)); }
  static constexpr auto logit(const auto& p) { return p.s + row<0>(p) * p.terms; }
};

}  // namespace
}  // namespace tally

TALLY_PAIR(threshold, Threshold);
TALLY_PAIR(reading, Reading);
TALLY_PAIR(bounded, Bounded);
TALLY_PAIR(divided, Divided);
TALLY_PAIR(reproached, Reproached);
TALLY_PAIR(expelled, Expelled);
TALLY_PAIR(blamed, Blamed);
TALLY_PAIR(graded, Graded);
TALLY_PAIR(binned, Binned);
TALLY_PAIR(bent, Bent);
TALLY_PAIR(channelled, Channelled);
TALLY_PAIR(columned, Columned);
TALLY_PAIR(apart, Apart);
TALLY_PAIR(overruled, Overruled);
TALLY_PAIR(vectored, Vectored);

#ifndef TALLY_PAIR_ONLY

#include "tests/nn/pair_policies.hpp"

namespace tally::testing {

const PairPolicy& threshold_policy() { return pair_threshold; }
const PairPolicy& reading_policy() { return pair_reading; }
const PairPolicy& bounded_policy() { return pair_bounded; }
const PairPolicy& divided_policy() { return pair_divided; }
const PairPolicy& reproached_policy() { return pair_reproached; }
const PairPolicy& expelled_policy() { return pair_expelled; }
const PairPolicy& blamed_policy() { return pair_blamed; }
const PairPolicy& graded_policy() { return pair_graded; }
const PairPolicy& binned_policy() { return pair_binned; }
const PairPolicy& bent_policy() { return pair_bent; }
const PairPolicy& channelled_policy() { return pair_channelled; }
const PairPolicy& columned_policy() { return pair_columned; }
const PairPolicy& apart_policy() { return pair_apart; }
const PairPolicy& overruled_policy() { return pair_overruled; }
const PairPolicy& vectored_policy() { return pair_vectored; }

}  // namespace tally::testing

#endif
