// Small branch-free functions that score shapes use for one pair of query and key, for the host (as vector code inside
// `#pragma omp simd` loops) and the device. s raw score, l logit, j key, i query.
#pragma once

#include <cstdint>
#include <limits>

#include "core/math/math.hpp"

namespace tally::attention {

// The table entry below position p and the fraction beyond it: c = min(p, last), low = floor(c), w = c - low. An
// integer belongs to the interval to its right, as the derivative there needs it. Below 0 the first interval is
// extrapolated. If p is NaN so is w, and low is valid. In this order each choice is one vector instruction.
template <class T>
struct TableIndex {
  std::int32_t low;
  T w;
};
template <class T>
TALLY_INLINE TableIndex<T> table_index(T p, T last) {
  const T c = last < p ? last : p;
  const auto low = static_cast<std::int32_t>(c > T{0} ? c : T{0});
  return {low, c - static_cast<T>(low)};
}
// (1-w) z[low] + w z[low+1]. The table repeats its last entry, so low + 1 always exists and positions beyond the end
// have slope 0.
template <class T>
TALLY_INLINE T interpolate(T z_low, T rise, T w) {
  return z_low + w * rise;
}

// The last of `count` ascending knots before x, or the first.
template <class T>
TALLY_INLINE std::int32_t knot_before(const T* knots, std::int32_t count, T x) {
  std::int32_t low = 0;
  while (count > 1) {
    const std::int32_t half = count / 2;
    low += knots[low + half] < x ? half : 0;
    count -= half;
  }
  return low;
}

// --- normalisers; a masked pair has l = -inf ---

// e^x for x <= 0, and 0 below e^-60 (f64: e^-600). Products with such weights would be subnormal, which processors
// compute a hundred times slower. Next to the weight of the largest logit they are negligible.
template <class T>
TALLY_INLINE T weight(T x) {
  return x < (sizeof(T) == sizeof(float) ? T{-60} : T{-600}) ? T{0} : math::exp(x);
}

// softpick (arXiv 2504.20966) under a shift M >= 0, one = e^-M: with t = e^(l-M) - e^-M, the weight is max(t, 0), the
// term of the sum |t|, and the slope for derivatives sign(t) e^(l-M).
template <class T>
struct Softpick {
  T above, size, slope;
};
template <class T>
TALLY_INLINE Softpick<T> softpick(T l, T shift, T one) {
  // e may underflow to 0 for pairs that are not masked, so test l instead.
  const T e = math::exp(l - shift), t = l >= std::numeric_limits<T>::lowest() ? e - one : T{0};
  const T above = t > T{0} ? t : T{0}, below = t < T{0} ? -t : T{0};
  const T slope = t < T{0} ? -e : e;
  return {above, above + below, t == T{0} ? T{0} : slope};
}
// z0 of the softpick sum, which prevents a division by 0.
inline constexpr double softpick_least = 1e-8;

}  // namespace tally::attention
