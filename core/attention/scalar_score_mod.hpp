// A score modification on one pair of query and key, in double, with its derivatives. The reference attention calls it
// through function pointers; the fused kernels compile the same functions into their loops.
#pragma once

#include "core/attention/score_mod.hpp"

namespace tally {

// One number for each input of a score modification: the values of a pair, or the derivatives of a result by them.
struct ScoreModInputs {
  double s = 0;                                  // score s_ij
  double gate_logit = 0;                         // r_i.G_j of separate operands, or s_ij
  double distance = 0;                           // i - j; takes no derivative
  double sum = 0;                                // running sum p_ij of the gates
  double entry = 0;                              // table entry of row i at the position of the pair
  double scalars[attention::most_scalars] = {};  // of the row, then of the head

  // this += factor x
  void add(double factor, const ScoreModInputs& x) {
    s += factor * x.s;
    gate_logit += factor * x.gate_logit;
    sum += factor * x.sum;
    entry += factor * x.entry;
    for (int n = 0; n < attention::most_scalars; ++n) scalars[n] += factor * x.scalars[n];
  }
};

struct ScoreModResult {
  double value = 0;
  ScoreModInputs by;  // derivatives
};

struct ScalarScoreMod {
  using Function = ScoreModResult(const ScoreModInputs& p);
  Function* gate;      // summed along the keys; 0 for modifications without one
  Function* position;  // at which a table is read
  Function* logit;     // its derivative by the entry is the last: the caller continues to the position
  ScoreModTraits traits;
};

namespace attention {

template <class Mod>
PairInputs<double, Mod, true> scalar_pair(const ScoreModInputs& p) {
  return PairInputs<double, Mod, true>::of(p.s, p.gate_logit, p.sum, p.distance,
                                           [&](std::size_t n) { return p.scalars[n]; });
}

template <std::uint32_t inputs>
ScoreModResult scalar_result(const Dual<double, inputs>& y) {
  ScoreModResult result{.value = y.value, .by = {}};
  result.by.s = vjp<input_s>(1.0, y);
  result.by.gate_logit = vjp<input_gate_logit>(1.0, y);
  result.by.sum = vjp<input_sum>(1.0, y);
  result.by.entry = vjp<input_entry>(1.0, y);
  detail::each_input<(1u << most_scalars) - 1>(
      [&]<int n>() { result.by.scalars[n] = vjp<first_scalar_input + n>(1.0, y); });
  return result;
}

template <class Mod>
ScoreModResult scalar_logit(const ScoreModInputs& p) {
  const auto pair = scalar_pair<Mod>(p);
  if constexpr (traits_of<Mod>.table) {
    const double slope = 0;
    return scalar_result(logit_of<Mod>(PairWithEntry<double, Mod, true>(pair, p.entry, slope, position_of<Mod>(pair))));
  } else {
    return scalar_result(logit_of<Mod>(pair));
  }
}

template <class Mod>
inline constexpr ScalarScoreMod scalar_score_mod{
    .gate = [](const ScoreModInputs& p) { return scalar_result(gate_of<Mod>(scalar_pair<Mod>(p))); },
    .position = [](const ScoreModInputs& p) { return scalar_result(position_of<Mod>(scalar_pair<Mod>(p))); },
    .logit = &scalar_logit<Mod>,
    .traits = traits_of<Mod>};

}  // namespace attention
}  // namespace tally
