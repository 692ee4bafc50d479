// Sums and maxima over one row, in vector lanes whose number does not depend on the processor. Lane l takes the
// elements l, l + 32, l + 64, ...; at the end the lanes are added in pairs. The compiler may not reorder floating-point
// additions, so the same order on every path gives the same bits. Sums are formed in double.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/math/math.hpp"

namespace tally::cpu {

inline constexpr std::int64_t lane_count = 32;

// term(0) + ... + term(n - 1)
template <class Term>
TALLY_INLINE double lane_sum(std::int64_t n, Term&& term) {
  double lane[lane_count] = {};
  std::int64_t i = 0;
  for (; i + lane_count <= n; i += lane_count) {
#pragma omp simd
    for (std::int64_t l = 0; l < lane_count; ++l) lane[l] += static_cast<double>(term(i + l));
  }
  for (std::int64_t l = 0; i + l < n; ++l) lane[l] += static_cast<double>(term(i + l));
  for (std::int64_t width = lane_count / 2; width > 0; width /= 2) {
    for (std::int64_t l = 0; l < width; ++l) lane[l] += lane[l + width];
  }
  return lane[0];
}

// The largest of term(0) .. term(n - 1), -infinity for n = 0; NaN are ignored.
template <class T, class Term>
TALLY_INLINE T lane_max(std::int64_t n, Term&& term) {
  T lane[lane_count];
  std::fill_n(lane, lane_count, -std::numeric_limits<T>::infinity());
  const auto raise = [](T& largest, T value) TALLY_INLINED { largest = value > largest ? value : largest; };
  std::int64_t i = 0;
  for (; i + lane_count <= n; i += lane_count) {
#pragma omp simd
    for (std::int64_t l = 0; l < lane_count; ++l) raise(lane[l], term(i + l));
  }
  for (std::int64_t l = 0; i + l < n; ++l) raise(lane[l], term(i + l));
  for (std::int64_t width = lane_count / 2; width > 0; width /= 2) {
    for (std::int64_t l = 0; l < width; ++l) raise(lane[l], lane[l + width]);
  }
  return lane[0];
}

}  // namespace tally::cpu
