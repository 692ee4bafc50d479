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

#include "core/attention/score_mod_deduction.hpp"

namespace tally::attention {

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
