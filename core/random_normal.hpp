// Normal numbers by the method of Box and Muller (Annals of Mathematical Statistics, 1958), from operations that every
// device and instruction set rounds alike: additions, products, fma, quotients and roots in f64. A library's logarithm
// and cosine are rounded by each in its own way.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/random.hpp"

namespace tally {
namespace detail {

// log x, 2^-32 <= x <= 1, within 2 units in the last place: x = m 2^e with sqrt(1/2) < m <= sqrt(2), and
// log m = 2 artanh(s) with s = (m-1)/(m+1), a series in s².
TALLY_HOST_DEVICE inline double log_of_uniform(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  double exponent = static_cast<double>(static_cast<std::int64_t>(bits >> 52) - 1023);
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFu) | (std::uint64_t{1023} << 52));
  if (m > std::numbers::sqrt2) m *= 0.5, exponent += 1;
  const double s = (m - 1) / (m + 1), t = s * s;
  double series = 1.0 / 25;
  for (int n = 23; n >= 1; n -= 2) series = std::fma(series, t, 1.0 / n);
  return std::fma(exponent, std::numbers::ln2, 2 * s * series);
}

// cos(2 pi u), 0 <= u <= 1 with no digit below 2^-32, so that u comes down to an eighth of a turn without rounding.
TALLY_HOST_DEVICE inline double cos_of_turn(double u) {
  double part = u > 0.5 ? 1 - u : u;
  const bool negative = part > 0.25;
  if (negative) part = 0.5 - part;
  const bool is_sine = part > 0.125;
  const double x = 2 * std::numbers::pi * (is_sine ? 0.25 - part : part), t = x * x;
  double sine = 1, cosine = 1;
  for (int n = 18; n >= 2; n -= 2) {
    sine = std::fma(-t * (1.0 / (n * (n + 1))), sine, 1.0);
    cosine = std::fma(-t * (1.0 / (n * (n - 1))), cosine, 1.0);
  }
  const double value = is_sine ? x * sine : cosine;
  return negative ? -value : value;
}

// (0, 1] with 32 bits
TALLY_HOST_DEVICE inline double positive_uniform(std::uint32_t bits) { return (bits + 1.0) * 0x1p-32; }

}  // namespace detail

// From two words of a stream.
TALLY_HOST_DEVICE inline double normal_from_bits(std::uint32_t first, std::uint32_t second, double mean,
                                                 double deviation) {
  const double radius = std::sqrt(-2 * detail::log_of_uniform(detail::positive_uniform(first)));
  return std::fma(deviation * radius, detail::cos_of_turn(detail::positive_uniform(second)), mean);
}

}  // namespace tally
