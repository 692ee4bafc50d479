// A score modification (core/attention/pair.hpp) on one pair of query and key, in double, with its derivatives. The
// reference attention calls it through function pointers; the fused kernels compile the same policy into their loops.
#pragma once

#include "core/attention/pair.hpp"

namespace tally {

// One number for each input of a score modification: the values of a pair, or the derivatives of a result by them.
struct ScoreModInputs {
  double s = 0;                                  // score s_ij
  double gate_logit = 0;                         // p.other: r_i.G_j of separate operands, or s_ij
  double distance = 0;                           // i - j; takes no derivative
  double sum = 0;                                // running sum p_ij of the gates
  double entry = 0;                              // table entry of row i at the position of the pair
  double numbers[attention::most_numbers] = {};  // of the row, then of the head

  // this += factor x
  void add(double factor, const ScoreModInputs& x) {
    s += factor * x.s;
    gate_logit += factor * x.gate_logit;
    sum += factor * x.sum;
    entry += factor * x.entry;
    for (int n = 0; n < attention::most_numbers; ++n) numbers[n] += factor * x.numbers[n];
  }
};

struct ScoreModResult {
  double value = 0;
  ScoreModInputs by;  // derivatives
};

struct ScalarScoreMod {
  // Summed along the keys.
  ScoreModResult (*gate)(const ScoreModInputs& p) = [](const ScoreModInputs&) { return ScoreModResult{}; };
  // At which a table is read; null for modifications without one.
  ScoreModResult (*position)(const ScoreModInputs& p) = nullptr;
  ScoreModResult (*logit)(const ScoreModInputs& p) = nullptr;
  bool sums_own_gate = true;  // the sum of key j includes its own gate
  bool reads_biases = false;  // s includes the biases; else they are added to the logit
  int rows = 0, heads = 0;    // how many numbers a row and a head have
};

namespace attention {

template <class Policy, bool for_logit>
PairIn<double, Policy, true, for_logit> scalar_pair(const ScoreModInputs& p) {
  return PairIn<double, Policy, true, for_logit>::of(p.s, p.gate_logit, p.sum, p.distance,
                                                     [&](std::size_t n) { return p.numbers[n]; });
}

template <std::uint32_t inputs>
ScoreModResult scalar_result(const Dual<double, inputs>& y) {
  ScoreModResult result{.value = y.value, .by = {}};
  result.by.s = pulled<input_s>(1.0, y);
  result.by.gate_logit = pulled<input_other>(1.0, y);
  result.by.sum = pulled<input_sum>(1.0, y);
  result.by.entry = pulled<input_entry>(1.0, y);
  detail::each_input<(1u << most_numbers) - 1>(
      [&]<int n>() { result.by.numbers[n] = pulled<first_row_input + n>(1.0, y); });
  return result;
}

template <class Policy>
ScoreModResult scalar_gate(const ScoreModInputs& p) {
  return scalar_result(gate_of<Policy>(scalar_pair<Policy, false>(p)));
}
template <class Policy>
ScoreModResult scalar_position(const ScoreModInputs& p) {
  return scalar_result(place_of(scalar_pair<Policy, true>(p)));
}
// The derivative by the entry stops there: how the entry depends on the position is up to the caller.
template <class Policy>
ScoreModResult scalar_logit(const ScoreModInputs& p) {
  const auto pair = scalar_pair<Policy, true>(p);
  if constexpr (Policy::needs.table) {
    const double slope = 0;
    return scalar_result(logit_of<Policy>(PairWithEntry<double, Policy, true>(pair, p.entry, slope, place_of(pair))));
  } else {
    return scalar_result(logit_of<Policy>(pair));
  }
}

template <class Policy>
constexpr ScalarScoreMod make_scalar_score_mod() {
  constexpr PairNeeds needs = Policy::needs;
  ScalarScoreMod mod{
      .sums_own_gate = needs.own, .reads_biases = needs.biased, .rows = needs.rows, .heads = needs.heads};
  if constexpr (needs.scan) mod.gate = &scalar_gate<Policy>;
  if constexpr (needs.table) mod.position = &scalar_position<Policy>;
  mod.logit = &scalar_logit<Policy>;
  return mod;
}
template <class Policy>
inline constexpr ScalarScoreMod scalar_score_mod = make_scalar_score_mod<Policy>();

}  // namespace attention
}  // namespace tally
