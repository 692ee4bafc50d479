// What a score shape computes for one pair of query and key: small branch-free functions for the host (they become
// vector code inside `#pragma omp simd` loops) and the device. s raw score, l logit, j key, i query.
#pragma once

#include <cstdint>

#include "core/math.hpp"

namespace tally::attention {

// --- contextual positions (CoPE, arXiv 2405.18719, eq. 3 to 5): p_ij = sum_{k=j..i} gate(s_ik) ---

template <class T>
TALLY_INLINE T gate(T s) {
  return math::sigmoid(s);
}
// d gate / d s from the gate.
template <class T>
TALLY_INLINE T gate_slope(T g) {
  return g * (T{1} - g);
}

// The entry of a table below position p, and how far p is beyond it: c = min(p, last), low = floor(c), w = c - low. At
// an integer the interval to its right is meant, as the derivative there needs it. Below 0 the first interval goes on;
// where p is NaN so is w, with a valid entry. In this order each choice is one instruction of vector code.
template <class T>
struct Place {
  std::int32_t low;
  T w;
};
template <class T>
TALLY_INLINE Place<T> place_in_table(T p, T last) {
  const T c = last < p ? last : p;
  const auto low = static_cast<std::int32_t>(c > T{0} ? c : T{0});
  return {low, c - static_cast<T>(low)};
}
// (1-w) z[low] + w z[low+1]; the table's last entry stands twice, so that low + 1 exists and no position beyond it has
// a slope.
template <class T>
TALLY_INLINE T interpolate(T z_low, T rise, T w) {
  return z_low + w * rise;
}

// relu(w p + b)
template <class T>
TALLY_INLINE T hidden(T w, T b, T p) {
  const T h = w * p + b;
  return T{0} > h ? T{0} : h;  // NaN stays
}

// The derivative of relu from its result, as a factor: a loop with two choices by one condition is not made vector
// code.
template <class T>
TALLY_INLINE T hidden_slope(T h) {
  return h > T{0} ? T{1} : T{0};
}

// --- stick-breaking (arXiv 2410.17980): A_ij = exp(l_ij - sum_{k=j..i-1} softplus(l_ik)) ---

template <class T>
TALLY_INLINE T stick_taken(T l) {
  return math::softplus(l);
}
// `taken` of this key and of those between it and the query; never above 0 in the exponent.
template <class T>
TALLY_INLINE T stick_weight(T l, T taken) {
  return math::exp(l - taken);
}

}  // namespace tally::attention
