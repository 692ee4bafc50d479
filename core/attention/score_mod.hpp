// A score modification: turns the score s_ij of query i and key j into a logit. It is a struct of functions of one
// pair, written once as scalar code and compiled for the vectors of the CPU, for the threads of CUDA and, on tensors,
// for reference attention. The same code gives the derivatives (core/attention/dual.hpp).
//
//   struct ContextualTable {  // CoPE
//     static constexpr auto gate(const auto& p) { return sigmoid(p.gate_logit); }
//     static constexpr auto bias(const auto& p) { return p.entry; }
//   };
//   struct Tra {
//     static constexpr int rows = 1;
//     static constexpr auto gate(const auto& p) { return select(p.s > 0, 1, 0); }
//     static constexpr auto logit(const auto& p) { return select(p.s > 0, p.s + row<0>(p) * p.sum, minus_infinity); }
//   };
//
// The functions that exist, and the inputs that they read, determine what attention computes
// (nn/position/contextual.md):
//
//   gate(p)                p.sum: the running sum p_ij = sum_{k=j..i} gate(pair i, k)
//   gate_exclusive(p)      p.sum without the gate of key j itself
//   position(p)            the position x at which p.entry is read; without it p.sum
//   bias(p)                l_ij = s_ij + bias. It does not read p.s, which may include another product.
//   logit(p)               l_ij. Biases of other encodings are added to it.
//   logit_after_biases(p)  l_ij, with p.s the score plus the biases, also in gates. One of these three exists.
//
//   p.s           score, scale q_i.k_j
//   p.gate_logit  scale r_i.G_j of separate operands; p.s if a call has none
//   p.distance    i - j
//   p.entry       table_i[x], linearly interpolated between x = 0..P. Beyond P it is the last entry, and below 0 the
//                 first interval is extrapolated. With `static constexpr bool knots = true` it is linear between the
//                 knots t_0 <= t_1 <= ... of all rows: v_i[n] + r_i[n] (x - t_n), with the last n whose t_n < x, or 0.
//   row<n>(p)     scalars of the query, n < `static constexpr int rows`
//   head<n>(p)    scalars of the head, n < `static constexpr int heads`
//
// There are no branches: `select` chooses between two numbers, both finite, because gradients in reference attention
// flow through both. A key whose logit is minus_infinity has no weight, but its gate still counts.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "core/attention/dual.hpp"
#include "core/attention/score_mod_traits.hpp"

namespace tally::attention {

// A number that records which inputs it was computed from. The functions of a score modification are evaluated with
// such numbers at compile time.
struct Traced {
  std::uint32_t reads = 0;        // a bit for each input
  std::uint32_t derivatives = 0;  // inputs that it has a derivative by: all that are not only compared
  bool nonnegative = false;
  bool is_entry = false;  // p.entry itself

  constexpr Traced() = default;
  constexpr Traced(std::uint32_t read, std::uint32_t by, bool not_below_0 = false, bool entry = false)
      : reads(read), derivatives(by), nonnegative(not_below_0), is_entry(entry) {}
  template <detail::Plain C>
  constexpr Traced(C number) : nonnegative(static_cast<double>(number) >= 0) {}
  constexpr Traced(MinusInfinity) {}

  template <class X = void>
  explicit constexpr operator bool() const {
    static_assert(std::is_same_v<X, Traced>,
                  "a score modification chooses by select(condition, a, b), never by if or ?:");
    return false;
  }
};

constexpr Traced joined(const Traced& a, const Traced& b, bool nonnegative) {
  return {a.reads | b.reads, a.derivatives | b.derivatives, nonnegative};
}
constexpr Traced compared(const Traced& a, const Traced& b) { return {a.reads | b.reads, 0}; }

constexpr Traced operator+(const Traced& a, const Traced& b) { return joined(a, b, a.nonnegative && b.nonnegative); }
constexpr Traced operator*(const Traced& a, const Traced& b) { return joined(a, b, a.nonnegative && b.nonnegative); }
constexpr Traced operator/(const Traced& a, const Traced& b) { return joined(a, b, a.nonnegative && b.nonnegative); }
constexpr Traced operator-(const Traced& a, const Traced& b) { return joined(a, b, false); }
constexpr Traced operator-(const Traced& x) { return {x.reads, x.derivatives}; }
constexpr Traced operator<(const Traced& a, const Traced& b) { return compared(a, b); }
constexpr Traced operator<=(const Traced& a, const Traced& b) { return compared(a, b); }
constexpr Traced operator>(const Traced& a, const Traced& b) { return compared(a, b); }
constexpr Traced operator>=(const Traced& a, const Traced& b) { return compared(a, b); }
constexpr Traced operator&&(const Traced& a, const Traced& b) { return compared(a, b); }
constexpr Traced operator||(const Traced& a, const Traced& b) { return compared(a, b); }
constexpr Traced operator!(const Traced& x) { return x; }
constexpr Traced select(const Traced& truth, const Traced& a, const Traced& b) {
  return {truth.reads | a.reads | b.reads, a.derivatives | b.derivatives, a.nonnegative && b.nonnegative};
}
constexpr Traced min(const Traced& a, const Traced& b) { return joined(a, b, a.nonnegative && b.nonnegative); }
constexpr Traced max(const Traced& a, const Traced& b) { return joined(a, b, a.nonnegative || b.nonnegative); }
constexpr Traced relu(const Traced& x) { return {x.reads, x.derivatives, true}; }
constexpr Traced abs(const Traced& x) { return {x.reads, x.derivatives, true}; }
constexpr Traced exp(const Traced& x) { return {x.reads, x.derivatives, true}; }
constexpr Traced sqrt(const Traced& x) { return {x.reads, x.derivatives, true}; }
constexpr Traced sigmoid(const Traced& x) { return {x.reads, x.derivatives, true}; }
constexpr Traced softplus(const Traced& x) { return {x.reads, x.derivatives, true}; }
constexpr Traced log(const Traced& x) { return {x.reads, x.derivatives}; }
constexpr Traced sin(const Traced& x) { return {x.reads, x.derivatives}; }
constexpr Traced cos(const Traced& x) { return {x.reads, x.derivatives}; }
constexpr Traced tanh(const Traced& x) { return {x.reads, x.derivatives}; }

// Functions that an author might call, but that dual numbers do not have.
#define TALLY_NO_FUNCTION(name)                                                                                        \
  template <class... More>                                                                                             \
  constexpr Traced name(const Traced& x, const More&...) {                                                             \
    static_assert(sizeof...(More) > 9,                                                                                 \
                  "a score modification has no " #name ": nn/position/contextual.md lists the functions it may call"); \
    return x;                                                                                                          \
  }
TALLY_NO_FUNCTION(pow)
TALLY_NO_FUNCTION(tan)
TALLY_NO_FUNCTION(floor)
TALLY_NO_FUNCTION(ceil)
TALLY_NO_FUNCTION(log1p)
TALLY_NO_FUNCTION(log2)
TALLY_NO_FUNCTION(exp2)
TALLY_NO_FUNCTION(expm1)
#undef TALLY_NO_FUNCTION

template <class>
inline constexpr int rows_of = 0;
template <class Mod>
requires(Mod::rows > 0) inline constexpr int rows_of<Mod> = Mod::rows;
template <class>
inline constexpr int heads_of = 0;
template <class Mod>
requires(Mod::heads > 0) inline constexpr int heads_of<Mod> = Mod::heads;

template <int n, class P>
TALLY_INLINE constexpr auto row(const P& p) {
  static_assert(n < rows_of<typename P::Mod>, "the score modification reads row<n>(p), but its `rows` is not above n");
  return p.template scalar<n>();
}
template <int n, class P>
TALLY_INLINE constexpr auto head(const P& p) {
  static_assert(n < heads_of<typename P::Mod>,
                "the score modification reads head<n>(p), but its `heads` is not above n");
  return p.template scalar<rows_of<typename P::Mod> + n>();
}

// The functions of a score modification, on any kind of numbers. Functions that it does not have give 0.
template <class Mod, class P>
TALLY_INLINE constexpr auto gate_of(const P& p) {
  if constexpr (requires { Mod::gate(p); }) {
    return P::result(Mod::gate(p));
  } else if constexpr (requires { Mod::gate_exclusive(p); }) {
    return P::result(Mod::gate_exclusive(p));
  } else {
    return P::result(0);
  }
}
template <class Mod, class P>
TALLY_INLINE constexpr auto position_of(const P& p) {
  if constexpr (requires { Mod::position(p); }) {
    return P::result(Mod::position(p));
  } else {
    return p.sum;
  }
}
// The bias or logit, whichever exists.
template <class Mod, class P>
TALLY_INLINE constexpr auto result_of(const P& p) {
  if constexpr (requires { Mod::bias(p); }) {
    return P::result(Mod::bias(p));
  } else if constexpr (requires { Mod::logit(p); }) {
    return P::result(Mod::logit(p));
  } else {
    return P::result(Mod::logit_after_biases(p));
  }
}
template <class Mod, class P>
TALLY_INLINE constexpr auto logit_of(const P& p) {
  if constexpr (requires { Mod::bias(p); }) {
    return P::result(p.s + result_of<Mod>(p));
  } else {
    return result_of<Mod>(p);
  }
}

// The inputs as numbers that record their use.
template <class ScoreMod>
struct TracedInputs {
  using Mod = ScoreMod;
  Traced entry{1u << input_entry, 1u << input_entry};
  Traced s{1u << input_s, 1u << input_s}, gate_logit{1u << input_gate_logit, 1u << input_gate_logit};
  Traced sum{1u << input_sum, 1u << input_sum}, distance{1u << input_distance, 0};

  template <int n>
  constexpr Traced scalar() const {
    return {1u << (first_scalar_input + n), 1u << (first_scalar_input + n)};
  }
  static constexpr Traced result(const Traced& x) { return x; }
};

// A mistake in a score modification fails to compile with its sentence.
template <class Mod>
constexpr ScoreModTraits deduced_traits() {
  using P = TracedInputs<Mod>;
  constexpr int rows = rows_of<Mod>, heads = heads_of<Mod>;
  static_assert(rows + heads <= most_scalars, "a score modification has at most 16 scalars of rows and heads");
  constexpr bool gate = requires(const P& p) { Mod::gate(p); };
  constexpr bool exclusive = requires(const P& p) { Mod::gate_exclusive(p); };
  constexpr bool position = requires(const P& p) { Mod::position(p); };
  constexpr bool bias = requires(const P& p) { Mod::bias(p); };
  constexpr bool logit = requires(const P& p) { Mod::logit(p); };
  constexpr bool after_biases = requires(const P& p) { Mod::logit_after_biases(p); };
  static_assert(bias + logit + after_biases == 1,
                "a score modification has one of bias(p), logit(p) and logit_after_biases(p)");
  static_assert(!gate || !exclusive, "a score modification has gate(p) or gate_exclusive(p), not both");

  constexpr P p;
  constexpr Traced of_gate = gate_of<Mod>(p), at = position_of<Mod>(p);
  static_assert(!reads(of_gate.reads | at.reads, input_entry), "gates and positions do not read p.entry");
  static_assert(!reads(of_gate.reads, input_sum), "gates do not read p.sum, which is the sum of gates");
  constexpr P with_entry{{1u << input_entry, 1u << input_entry | at.derivatives, false, true}};
  constexpr Traced result = result_of<Mod>(with_entry);

  constexpr bool sums = gate || exclusive, table = reads(result.reads, input_entry);
  constexpr std::uint32_t before = of_gate.reads | (position ? at.reads : 0), all = before | result.reads;
  static_assert(!table || sums || position,
                "p.entry is read at position(p), or with gate(p) at p.sum: the score modification has neither");
  static_assert(!position || table, "position(p) is for p.entry, which the score modification does not read");
  static_assert(sums || !reads(all, input_sum),
                "p.sum is the sum of gate(p), which the score modification does not have");
  static_assert(!bias || !reads(result.reads, input_s), "bias(p) is added to p.s: to read p.s, write logit(p)");
  static_assert(!bias || !reads(before, input_s),
                "with bias(p) another product may be part of p.s, which gates and positions must not see: read "
                "p.gate_logit");
  static_assert(!after_biases || !reads(all, input_gate_logit),
                "p.gate_logit has no biases: with logit_after_biases(p) gates read p.s");
  constexpr bool knots = requires { requires Mod::knots; };
  static_assert(!knots || table, "knots are of a table: the score modification does not read p.entry");

  constexpr std::uint32_t direct = result.derivatives | (bias ? 1u << input_s : 0);
  return {.sums = sums,
          .sums_own_gate = !exclusive,
          .gate_logit = reads(all, input_gate_logit),
          .table = table,
          .knots = knots,
          .own_position = position,
          .saturates = table && !knots && !position && of_gate.nonnegative && !reads(result.reads, input_sum) &&
                       !reads(result.reads, input_gate_logit),
          .adds = bias,
          .adds_entry = bias && result.is_entry,
          .after_biases = after_biases,
          .rows = rows,
          .heads = heads,
          .gradients = direct | (reads(direct, input_sum) ? of_gate.derivatives : 0)};
}
template <class Mod>
inline constexpr ScoreModTraits traits_of = deduced_traits<Mod>();

// No score modification: l_ij = s_ij plus the biases.
struct NoScoreMod {
  static constexpr auto bias(const auto&) { return 0; }
};

// The inputs of one pair, with or without derivatives, for all functions that do not read p.entry.
template <class R, class ScoreMod, bool differentiates>
struct PairInputs {
  using Mod = ScoreMod;
  static constexpr auto scalar_count = std::size_t{rows_of<Mod>} + std::size_t{heads_of<Mod>};
  template <int i>
  using Input = Dual<R, differentiates ? 1u << i : 0u>;

  Input<input_s> s;
  Input<input_gate_logit> gate_logit;
  Input<input_sum> sum;
  Dual<R, 0> distance;
  std::array<R, scalar_count == 0 ? 1 : scalar_count> scalars;  // of the row, then of the head

  // scalar(n): first the scalars of the row, then of the head.
  template <class F>
  TALLY_INLINE static PairInputs of(const R& s, const R& gate_logit, const R& sum, const R& distance, const F& scalar) {
    PairInputs p;
    p.s = input<input_s, differentiates>(s);
    p.gate_logit = input<input_gate_logit, differentiates>(gate_logit);
    p.sum = input<input_sum, differentiates>(sum);
    p.distance = {distance, {}};
    for (std::size_t n = 0; n != scalar_count; ++n) p.scalars[n] = scalar(n);
    return p;
  }
  template <int n>
  TALLY_INLINE auto scalar() const {
    return input<first_scalar_input + n, differentiates>(scalars[static_cast<std::size_t>(n)]);
  }
  TALLY_INLINE static auto result(const auto& x) { return as_dual<R>(x); }
};

// The inputs of a function that reads p.entry: a value and, with derivatives, a slope along the position.
template <class R, class Mod, bool differentiates>
struct PairWithEntry : PairInputs<R, Mod, differentiates> {
  using Pair = PairInputs<R, Mod, differentiates>;
  using Position = decltype(position_of<Mod>(std::declval<const Pair&>()));
  decltype(input<input_entry, differentiates>(std::declval<R>()) + std::declval<Position>()) entry;

  TALLY_INLINE PairWithEntry(const Pair& pair, const R& value) requires(!differentiates)
      : Pair(pair), entry{value, {}} {}
  TALLY_INLINE PairWithEntry(const Pair& pair, const R& value, const R& slope, const Position& position)
      : Pair(pair), entry(detail::chain(splat<R>(0), slope, position) + input<input_entry, differentiates>(value)) {}
};

// d times y's derivative by input i; 0 if y does not depend on it.
template <int i, class R, std::uint32_t inputs>
TALLY_INLINE R vjp(const R& d, const Dual<R, inputs>& y) {
  if constexpr (Dual<R, inputs>::template has<i>) {
    return d * y.template by<i>();
  } else {
    return splat<R>(0);
  }
}

}  // namespace tally::attention
