// Normal numbers by the method of Box and Muller (Annals of Mathematical Statistics, 1958). They use only operations
// that every device and instruction set rounds alike: additions, products, fma, quotients and roots in f64. The
// logarithm and cosine of a library differ between libraries.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>

#include "core/math/inline.hpp"

namespace tally {
namespace detail {

// Power series, evaluated from the last term. The coefficients are constants; a loop would compute each with a
// division.
// 1 + t/3 + t²/5 + ... + t^12/25
template <std::size_t... n>
TALLY_INLINE double log_series(double t, std::index_sequence<n...>) {
  double sum = 1.0 / 25;
  ((sum = std::fma(sum, t, 1.0 / (23 - 2 * static_cast<int>(n)))), ...);
  return sum;
}
// The series in t = x² of sin(x) / x (next = 1) and cos(x) (next = -1): 1 - t/(2 (2+next)) (1 - t/(4 (4+next)) (1 -
// ...))
template <int next, std::size_t... n>
TALLY_INLINE double turn_series(double t, std::index_sequence<n...>) {
  double sum = 1;
  ((sum = std::fma(-t * (1.0 / ((18 - 2 * static_cast<int>(n)) * (18 - 2 * static_cast<int>(n) + next))), sum, 1.0)),
   ...);
  return sum;
}

// log x, 2^-32 <= x <= 1, within 2 units in the last place: x = m 2^e with sqrt(1/2) < m <= sqrt(2), and
// log m = 2 artanh(s) with s = (m-1)/(m+1), a series in s².
TALLY_INLINE double log_of_uniform(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  double exponent = static_cast<double>(static_cast<std::int64_t>(bits >> 52) - 1023);
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFu) | (std::uint64_t{1023} << 52));
  if (m > std::numbers::sqrt2) m *= 0.5, exponent += 1;
  const double s = (m - 1) / (m + 1), t = s * s;
  const double series = log_series(t, std::make_index_sequence<12>());
  return std::fma(exponent, std::numbers::ln2, 2 * s * series);
}

// cos(2 pi u), 0 <= u <= 1 with no digit below 2^-32, so that u is reduced to an eighth of a turn without rounding.
TALLY_INLINE double cos_of_turn(double u) {
  double part = u > 0.5 ? 1 - u : u;
  const bool negative = part > 0.25;
  if (negative) part = 0.5 - part;
  const bool is_sine = part > 0.125;
  const double x = 2 * std::numbers::pi * (is_sine ? 0.25 - part : part), t = x * x;
  constexpr std::make_index_sequence<9> terms{};
  const double sine = turn_series<1>(t, terms), cosine = turn_series<-1>(t, terms);
  const double value = is_sine ? x * sine : cosine;
  return negative ? -value : value;
}

// (0, 1] with 32 bits
TALLY_INLINE double positive_uniform(std::uint32_t bits) { return (bits + 1.0) * 0x1p-32; }

}  // namespace detail

// A normal number from two words of a stream.
TALLY_INLINE double normal_from_bits(std::uint32_t first, std::uint32_t second, double mean, double deviation) {
  const double radius = std::sqrt(-2 * detail::log_of_uniform(detail::positive_uniform(first)));
  return std::fma(deviation * radius, detail::cos_of_turn(detail::positive_uniform(second)), mean);
}

}  // namespace tally
