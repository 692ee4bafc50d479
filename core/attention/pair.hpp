// A pair policy: the score modification of one pair of query i and key j. It is written once as scalar code and
// compiled for the vectors of the CPU, for the threads of CUDA and, on tensors, for reference attention. The same code
// gives the derivatives (core/attention/dual.hpp).
//
//   p_ij = sum_{k=j..i} gate(pair i, k)                 with needs.scan: a running sum along the keys.
//   e_ij = table_i at x = place(pair i, j), or at p_ij  with needs.table: the entry of row i's table.
//   l_ij = logit(pair i, j), which has p.sum = p_ij and p.entry = e_ij.
//
// The table has table_i[n] at x = n, 0..P, and is linearly interpolated in between. Beyond P it has its last entry, and
// below 0 its first interval is extrapolated. With needs.knots it is any function that is linear between the knots
// t_0 <= t_1 <= ..., which all rows share: v_i[n] + r_i[n] (x - t_n), with the last n whose t_n < x, or the first.
//
// A policy may have a function of_distance, which reads only the distance and the numbers of the head. Its result is
// p.of_distance. The CPU computes it once for each diagonal of a tile.
//
//   struct Tra {
//     static constexpr PairNeeds needs{.scan = true, .rows = 1};
//     static constexpr auto gate(const auto& p) { return select(p.s > 0, 1, 0); }
//     static constexpr auto logit(const auto& p) { return select(p.s > 0, p.s + row<0>(p) * p.sum, minus_infinity); }
//   };
//
// A policy does not branch on its inputs; `select` chooses between two numbers. Both must be finite, because gradients
// in reference attention flow through both: hence `p.s / max(p.distance, 1)`. A key whose logit is minus_infinity has
// no weight, but its gate still counts. The functions are constexpr, because kernels call no others. They can use:
// + - * / and comparisons, also with plain numbers, && || !, select, min, max, abs, relu, exp, log, sqrt, sin, cos,
// sigmoid, softplus, tanh; and functions of their own struct.
#pragma once

#include <array>
#include <cstdint>

#include "core/attention/dual.hpp"
#include "core/attention/policy.hpp"

namespace tally {

namespace attention {

// The types of inputs that `needs` did not request.
struct SetNeedsDistanceToReadIt {};
struct SetNeedsScanToReadTheSum {};
struct TheSumIsForLogitAlone {};
struct SetNeedsOtherToReadOther {};
struct SetNeedsTableToReadEntry {};
struct EntryIsForLogitAlone {};
struct NothingIsOfDistance {};

// Any use of such an input fails to compile with this sentence.
#define TALLY_UNREADABLE_IN(op, Type, sentence)                                            \
  template <class X>                                                                       \
  constexpr auto operator op(const Type&, const X& x) {                                    \
    static_assert(detail::never<X>, sentence);                                             \
    return x;                                                                              \
  }                                                                                        \
  template <class X>                                                                       \
  requires(!std::is_same_v<X, Type>) constexpr auto operator op(const X& x, const Type&) { \
    static_assert(detail::never<X>, sentence);                                             \
    return x;                                                                              \
  }
#define TALLY_UNREADABLE(Type, sentence) \
  TALLY_UNREADABLE_IN(+, Type, sentence) \
  TALLY_UNREADABLE_IN(-, Type, sentence) \
  TALLY_UNREADABLE_IN(*, Type, sentence) \
  TALLY_UNREADABLE_IN(/, Type, sentence) \
  TALLY_UNREADABLE_IN(<, Type, sentence) \
  TALLY_UNREADABLE_IN(>, Type, sentence)
TALLY_UNREADABLE(SetNeedsDistanceToReadIt, "the policy reads p.distance, but needs.distance is false")
TALLY_UNREADABLE(SetNeedsScanToReadTheSum, "the policy reads p.sum, but needs.scan is false")
TALLY_UNREADABLE(TheSumIsForLogitAlone, "p.sum is for logit alone: a gate is what is summed")
TALLY_UNREADABLE(SetNeedsOtherToReadOther, "the policy reads p.other, but needs.other is false")
TALLY_UNREADABLE(SetNeedsTableToReadEntry, "the policy reads p.entry, but needs.table is false")
TALLY_UNREADABLE(NothingIsOfDistance, "the policy reads p.of_distance, but has no function of that name")
TALLY_UNREADABLE(EntryIsForLogitAlone, "p.entry is for logit alone: gates and places do not see it")
#undef TALLY_UNREADABLE
#undef TALLY_UNREADABLE_IN

// Bits of the inputs. The numbers of rows begin at first_row_input, and the numbers of heads follow them.
inline constexpr int input_s = 0, input_other = 1, input_sum = 2, input_entry = 3, first_row_input = 4,
                     most_numbers = 16;

// x as input i, or as a constant.
template <int i, bool differentiates, class R>
TALLY_INLINE Dual<R, differentiates ? 1u << i : 0u> as_input(const R& x) {
  if constexpr (differentiates) {
    return input<i>(x);
  } else {
    return {x, {}};
  }
}

// The input of of_distance, which is the same for all pairs of a head at one distance.
template <class R, class Policy, bool differentiates>
struct DistanceIn {
  static constexpr PairNeeds needs = Policy::needs;
  Dual<R, 0> distance;
  std::array<R, needs.heads == 0 ? 1 : static_cast<std::size_t>(needs.heads)> numbers;

  template <int n>
  TALLY_INLINE auto number() const {
    static_assert(n >= needs.rows, "of_distance is the same for all rows: it reads p.distance and head<n>(p) alone");
    return as_input<first_row_input + n, differentiates>(numbers[static_cast<std::size_t>(n - needs.rows)]);
  }
};
template <class R, class Policy, bool differentiates>
struct OfDistance {
  static constexpr bool exists = false;
  using Type = NothingIsOfDistance;
};
template <class R, class Policy, bool differentiates>
requires requires(const DistanceIn<R, Policy, differentiates>& p) { Policy::of_distance(p); }
struct OfDistance<R, Policy, differentiates> {
  static_assert(Policy::needs.distance, "the policy has of_distance, but needs.distance is false");
  static constexpr bool exists = true;
  using Type = decltype(as_dual<R>(Policy::of_distance(std::declval<const DistanceIn<R, Policy, differentiates>&>())));
};

// A policy's input for one pair, with or without derivatives. PairWithEntry adds the entry of a table.
template <class R, class Policy, bool differentiates, bool for_logit>
struct PairIn {
  static constexpr PairNeeds needs = Policy::needs;
  static_assert(needs.rows >= 0 && needs.heads >= 0 && needs.rows + needs.heads <= most_numbers,
                "a policy has at most 16 numbers of rows and heads");
  static_assert(!needs.biased || !needs.other, "p.other is of scores without biases");
  static_assert(!needs.spends || needs.scan, "what a policy spends is its sum: needs.scan must be true");
  static_assert(!needs.settles || (needs.scan && needs.table), "what settles is the place in a table that is p.sum");
  static_assert(!needs.knots || (needs.table && !needs.settles), "knots are of a table, and none that settles");
  static_assert(!needs.adds_entry || (needs.adds && needs.table),
                "needs.adds_entry is of policies with adds and table");
  template <int i>
  using Input = Dual<R, differentiates ? 1u << i : 0u>;

  using Other = std::conditional_t<needs.other, Input<input_other>, SetNeedsOtherToReadOther>;
  using Sum = std::conditional_t<!needs.scan, SetNeedsScanToReadTheSum,
                                 std::conditional_t<for_logit, Input<input_sum>, TheSumIsForLogitAlone>>;

  Input<input_s> s;  // score, scale q_i.k_j
  [[no_unique_address]] std::conditional_t<needs.distance, Dual<R, 0>, SetNeedsDistanceToReadIt> distance;
  [[no_unique_address]] typename OfDistance<R, Policy, differentiates>::Type of_distance;
  [[no_unique_address]] Other other;
  [[no_unique_address]] Sum sum;
  [[no_unique_address]] std::conditional_t<needs.table, EntryIsForLogitAlone, SetNeedsTableToReadEntry> entry;
  std::array<R, needs.rows + needs.heads == 0 ? 1 : static_cast<std::size_t>(needs.rows + needs.heads)> numbers;

  template <int i>
  TALLY_INLINE static Input<i> as_input(const R& x) {
    return attention::as_input<i, differentiates>(x);
  }
  // number(n): first the numbers of the row, then of the head.
  template <class F>
  TALLY_INLINE static PairIn of(const R& s, const R& other, const R& sum, const R& distance, const F& number) {
    PairIn p;
    p.s = as_input<input_s>(s);
    if constexpr (needs.distance) p.distance = {distance, {}};
    if constexpr (needs.other) p.other = as_input<input_other>(other);
    if constexpr (needs.scan && for_logit) p.sum = as_input<input_sum>(sum);
    if constexpr (needs.rows + needs.heads > 0) {
      for (std::size_t n = 0; n < p.numbers.size(); ++n) p.numbers[n] = number(n);
    }
    if constexpr (OfDistance<R, Policy, differentiates>::exists) {
      DistanceIn<R, Policy, differentiates> shared{{distance, {}}, {}};
      for (std::size_t n = 0; n < needs.heads; ++n) shared.numbers[n] = p.numbers[needs.rows + n];
      p.of_distance = as_dual<R>(Policy::of_distance(shared));
    }
    return p;
  }
  template <int n>
  TALLY_INLINE auto number() const {
    return as_input<first_row_input + n>(numbers[static_cast<std::size_t>(n)]);
  }
};

template <int n, class P>
TALLY_INLINE auto row(const P& p) {
  static_assert(n < P::needs.rows, "the policy reads row<n>(p), but needs.rows is not above n");
  return p.template number<n>();
}
template <int n, class P>
TALLY_INLINE auto head(const P& p) {
  static_assert(n < P::needs.heads, "the policy reads head<n>(p), but needs.heads is not above n");
  return p.template number<P::needs.rows + n>();
}

// The policy's results as dual numbers, whatever type it returns.
template <class Policy, class Gate>
TALLY_INLINE auto checked_gate(const Gate& gate) {
  static_assert(!Policy::needs.adds || !Gate::template has<input_s>,
                "with needs.adds a product may be part of p.s, which gates must not see: let gate read p.other");
  return gate;
}
template <class Policy, class R, bool differentiates>
TALLY_INLINE auto gate_of(const PairIn<R, Policy, differentiates, false>& p) {
  return checked_gate<Policy>(as_dual<R>(Policy::gate(p)));
}
// The position in the row's table.
template <class R, class Policy, bool differentiates>
TALLY_INLINE auto place_of(const PairIn<R, Policy, differentiates, true>& p) {
  if constexpr (requires { Policy::place(p); }) {
    static_assert(!Policy::needs.settles, "with needs.settles the place is p.sum, and the policy has none of its own");
    return as_dual<R>(Policy::place(p));
  } else {
    static_assert(Policy::needs.scan, "a policy with a table has a place or, with needs.scan, reads it at p.sum");
    return p.sum;
  }
}
// The input of `logit` for a policy with a table. The entry has a value and, with derivatives, a slope along the place.
template <class R, class Policy, bool differentiates>
struct PairWithEntry : PairIn<R, Policy, differentiates, true> {
  using Pair = PairIn<R, Policy, differentiates, true>;
  using Place = decltype(place_of(std::declval<Pair>()));
  using Entry =
      decltype(std::declval<Pair>().template as_input<input_entry>(std::declval<R>()) + std::declval<Place>());
  Entry entry;

  TALLY_INLINE PairWithEntry(const Pair& pair, const R& value) requires(!differentiates)
      : Pair(pair), entry{value, {}} {}
  TALLY_INLINE PairWithEntry(const Pair& pair, const R& value, const R& rise, const Place& place)
      : Pair(pair), entry(detail::chain(splat<R>(0), rise, place) + Pair::template as_input<input_entry>(value)) {}
};
// p is a PairWithEntry if the policy has a table.
template <class Policy, class Pair>
TALLY_INLINE auto logit_of(const Pair& p) {
  return as_dual<decltype(p.s.value)>(Policy::logit(p));
}
// d times y's derivative by input i; 0 if y does not depend on it.
template <int i, class R, std::uint32_t inputs>
TALLY_INLINE R pulled(const R& d, const Dual<R, inputs>& y) {
  if constexpr (Dual<R, inputs>::template has<i>) {
    return d * y.template by<i>();
  } else {
    return splat<R>(0);
  }
}

}  // namespace attention

}  // namespace tally
