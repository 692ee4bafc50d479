// The inputs that the logits of a pair policy have a derivative by, derived from its code. An operand that it only
// compares, or does not read, gets no gradient, as in reference attention. (A gradient of 0 would not be the same:
// optimisers apply weight decay to parameters that have a gradient.)
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "core/attention/pair.hpp"

namespace tally::attention {

template <class>
inline constexpr std::uint32_t inputs_in = 0;
template <class R, std::uint32_t inputs>
inline constexpr std::uint32_t inputs_in<Dual<R, inputs>> = inputs;

// Whether the set contains any of `count` inputs from `first` on.
constexpr bool reads(std::uint32_t inputs, int first, int count = 1) {
  return (inputs >> first & ((1u << count) - 1)) != 0;
}

template <class Policy>
constexpr auto pair_of_logit() {
  if constexpr (Policy::needs.table) {
    return std::type_identity<PairWithEntry<double, Policy, true>>();
  } else {
    return std::type_identity<PairIn<double, Policy, true, true>>();
  }
}

// Bit i is set if the logit has a derivative by input i, directly or through its gates.
template <class Policy>
consteval std::uint32_t inputs_of_logit() {
  constexpr PairNeeds needs = Policy::needs;
  using OfLogit = typename decltype(pair_of_logit<Policy>())::type;
  using OfGate = PairIn<double, Policy, true, false>;
  constexpr std::uint32_t of_logit = inputs_in<decltype(logit_of<Policy>(std::declval<OfLogit>()))>;
  static_assert(!needs.adds || reads(of_logit, input_s),
                "with needs.adds logit is p.s plus what the others make, but the policy does not read p.s");
  std::uint32_t inputs = of_logit;
  if constexpr (needs.scan) {
    if (reads(inputs, input_sum)) inputs |= inputs_in<decltype(gate_of<Policy>(std::declval<OfGate>()))>;
  }
  return inputs;
}

// Whether scores get a gradient. own_operands: the call has separate operands for p.other.
constexpr bool reaches_scores(std::uint32_t inputs, bool own_operands) {
  return reads(inputs, input_s) || (!own_operands && reads(inputs, input_other));
}

}  // namespace tally::attention
