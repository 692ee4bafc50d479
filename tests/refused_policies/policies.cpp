// Policies that are wrong in one place each, and the sentence by which each is refused when its file compiles:
// check.py compiles this file and asks the compiler.
#include "autograd/pair.hpp"

#include <cmath>

namespace {

using tally::head;
using tally::PairNeeds;
using tally::row;

// REFUSED(stem, "sentence", { the policy });
#define REFUSED(stem, sentence, ...) \
  }                                  \
  struct Wrong##stem __VA_ARGS__;    \
  TALLY_PAIR(stem, Wrong##stem);     \
  namespace {                        \
  static_assert(true)

REFUSED(Distance, "the policy reads p.distance, but needs.distance is false", {
  static constexpr PairNeeds needs{};
  static constexpr auto logit(const auto& p) { return p.s - p.distance; }
});
REFUSED(Sum, "the policy reads p.sum, but needs.scan is false", {
  static constexpr PairNeeds needs{};
  static constexpr auto logit(const auto& p) { return p.s - p.sum; }
});
REFUSED(SumOfGate, "p.sum is for logit alone: a gate is what is summed", {
  static constexpr PairNeeds needs{.scan = true};
  static constexpr auto gate(const auto& p) { return p.sum * 2; }
  static constexpr auto logit(const auto& p) { return p.s - p.sum; }
});
REFUSED(Other, "the policy reads p.other, but needs.other is false", {
  static constexpr PairNeeds needs{};
  static constexpr auto logit(const auto& p) { return p.s + p.other; }
});
REFUSED(Entry, "the policy reads p.entry, but needs.table is false", {
  static constexpr PairNeeds needs{};
  static constexpr auto logit(const auto& p) { return p.s + p.entry; }
});
REFUSED(EntryOfGate, "p.entry is for logit alone: gates and places do not see it", {
  static constexpr PairNeeds needs{.scan = true, .table = true};
  static constexpr auto gate(const auto& p) { return p.entry * 2; }
  static constexpr auto logit(const auto& p) { return p.s + p.entry; }
});
REFUSED(OfDistance, "the policy reads p.of_distance, but has no function of that name", {
  static constexpr PairNeeds needs{.distance = true};
  static constexpr auto logit(const auto& p) { return p.s + p.of_distance; }
});
REFUSED(Row, "the policy reads row<n>(p), but needs.rows is not above n", {
  static constexpr PairNeeds needs{.rows = 1};
  static constexpr auto logit(const auto& p) { return p.s + row<1>(p); }
});
REFUSED(Head, "the policy reads head<n>(p), but needs.heads is not above n", {
  static constexpr PairNeeds needs{};
  static constexpr auto logit(const auto& p) { return p.s * head<0>(p); }
});
REFUSED(RowOfDistance, "of_distance is the same for all rows: it reads p.distance and head<n>(p) alone", {
  static constexpr PairNeeds needs{.distance = true, .rows = 1};
  static constexpr auto of_distance(const auto& p) { return p.distance * row<0>(p); }
  static constexpr auto logit(const auto& p) { return p.s - p.of_distance; }
});
REFUSED(Branch, "a policy chooses by select(condition, a, b), never by if or ?:", {
  static constexpr PairNeeds needs{};
  static constexpr auto logit(const auto& p) { return p.s > 0 ? p.s : p.s * 2; }
});
REFUSED(Power, "a policy has no pow", {
  static constexpr PairNeeds needs{};
  static constexpr auto logit(const auto& p) { return pow(p.s, 2); }
});
REFUSED(GateOfScore, "with needs.adds a product may be part of p.s, which gates must not see: let gate read p.other", {
  static constexpr PairNeeds needs{.scan = true, .adds = true};
  static constexpr auto gate(const auto& p) { return sigmoid(p.s); }
  static constexpr auto logit(const auto& p) { return p.s - p.sum; }
});
REFUSED(Place, "a policy with a table has a place or, with needs.scan, reads it at p.sum", {
  static constexpr PairNeeds needs{.table = true};
  static constexpr auto logit(const auto& p) { return p.s + p.entry; }
});
REFUSED(Numbers, "a policy has at most 16 numbers of rows and heads", {
  static constexpr PairNeeds needs{.rows = 9, .heads = 8};
  static constexpr auto logit(const auto& p) { return p.s + row<8>(p); }
});
REFUSED(Spends, "what a policy spends is its sum: needs.scan must be true", {
  static constexpr PairNeeds needs{.spends = true};
  static constexpr auto logit(const auto& p) { return p.s; }
});

REFUSED(BiasedOther, "p.other is of scores without biases", {
  static constexpr PairNeeds needs{.biased = true, .other = true};
  static constexpr auto logit(const auto& p) { return p.s + p.other; }
});
REFUSED(Knots, "knots are of a table, and none that settles", {
  static constexpr PairNeeds needs{.knots = true};
  static constexpr auto logit(const auto& p) { return p.s * 2; }
});
REFUSED(Settles, "what settles is the place in a table that is p.sum", {
  static constexpr PairNeeds needs{.settles = true};
  static constexpr auto logit(const auto& p) { return p.s * 2; }
});
REFUSED(AddsEntry, "needs.adds_entry is of policies with adds and table", {
  static constexpr PairNeeds needs{.adds_entry = true};
  static constexpr auto logit(const auto& p) { return p.s * 2; }
});
REFUSED(FunctionOfDistance, "the policy has of_distance, but needs.distance is false", {
  static constexpr PairNeeds needs{.heads = 1};
  static constexpr auto of_distance(const auto& p) { return head<0>(p) * 2; }
  static constexpr auto logit(const auto& p) { return p.s + p.of_distance; }
});
REFUSED(Adds, "with needs.adds logit is p.s plus what the others make, but the policy does not read p.s", {
  static constexpr PairNeeds needs{.scan = true, .adds = true, .other = true};
  static constexpr auto gate(const auto& p) { return sigmoid(p.other); }
  static constexpr auto logit(const auto& p) { return -p.sum; }
});

}  // namespace
