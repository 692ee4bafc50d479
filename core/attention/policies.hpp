// What a score shape computes for one pair of query and key: small branch-free functions for the host (they become
// vector code inside `#pragma omp simd` loops) and the device. s raw score, l logit, j key, i query.
#pragma once

#include <cstdint>
#include <limits>

#include "core/math.hpp"

namespace tally::attention {

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

// --- normalisers; a pair that is not seen has l = -inf ---

// e^x of x <= 0, and 0 below e^-60 (e^-600): what such weights are multiplied with would be below the normal numbers,
// which processors compute a hundred times slower, and nothing beside the weight of the largest logit.
template <class T>
TALLY_INLINE T weight(T x) {
  return x < (sizeof(T) == sizeof(float) ? T{-60} : T{-600}) ? T{0} : math::exp(x);
}

// sigmoid(l - offset) is a weight as it is (arXiv 2409.04431).

// softpick (arXiv 2504.20966) under a shift M >= 0, one = e^-M: t = e^(l-M) - e^-M, of which the weight takes what is
// above 0, the sum the size, and derivatives the slope sign(t) e^(l-M).
template <class T>
struct Softpick {
  T above, size, slope;
};
template <class T>
TALLY_INLINE Softpick<T> softpick(T l, T shift, T one) {
  // e may be 0 without being that of a pair that is not seen.
  const T e = math::exp(l - shift), t = l >= std::numeric_limits<T>::lowest() ? e - one : T{0};
  const T above = t > T{0} ? t : T{0}, below = t < T{0} ? -t : T{0};
  const T slope = t < T{0} ? -e : e;
  return {above, above + below, t == T{0} ? T{0} : slope};
}
// z0 of its sum, which keeps a row from dividing by 0.
inline constexpr double softpick_least = 1e-8;

}  // namespace tally::attention
