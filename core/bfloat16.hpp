// bfloat16: the upper half of an f32, with its range and 7 bits after the point. A number to store and to multiply, not
// to compute with: sums of them are f32. On the host and on the device, by whole numbers alone: the result depends on
// no floating-point mode.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/inline.hpp"

namespace tally {

namespace detail {

// The upper half of an f32: to the nearest, ties to the even one, beyond the largest infinity. Below the normal numbers
// it is zero with the sign, as instructions that convert have it; a NaN stays one, quiet, with its sign.
template <class T>
TALLY_INLINE std::uint16_t bfloat16_bits(T x) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  constexpr int fraction = sizeof(T) == 4 ? 23 : 52, dropped = fraction - 7;
  constexpr Bits one = 1, infinity = sizeof(T) == 4 ? Bits{0xff} << fraction : Bits{0x7ff} << fraction;
  constexpr Bits bias = sizeof(T) == 4 ? 0 : 1023 - 127;  // of exponents, over that of f32
  constexpr Bits least = (bias + 1) << fraction, end = (bias + 255) << fraction;
  const Bits bits = std::bit_cast<Bits>(x), size = bits & ~(one << (8 * sizeof(T) - 1));
  const Bits nearest = (size - (bias << fraction) + (one << (dropped - 1)) - 1 + (size >> dropped & 1)) >> dropped;
  Bits result = size < least ? 0 : size < end ? nearest : 0x7f80;
  result = size > infinity ? 0x7fc0 | (size >> dropped & 0x3f) : result;
  return static_cast<std::uint16_t>(result | (bits != size ? 0x8000 : 0));
}

}  // namespace detail

struct Bfloat16 {
  std::uint16_t bits = 0;

  Bfloat16() = default;
  // Of a whole number as of the f64 that is nearest to it.
  template <class T>
  requires std::is_arithmetic_v<T> TALLY_INLINE explicit Bfloat16(T x) {
    if constexpr (std::is_same_v<T, float>) {
      bits = detail::bfloat16_bits(x);
    } else {
      bits = detail::bfloat16_bits(static_cast<double>(x));
    }
  }
  TALLY_INLINE static Bfloat16 of_bits(std::uint16_t bits) {
    Bfloat16 x;
    x.bits = bits;
    return x;
  }
  // Exact in f32 and f64.
  template <class T>
  requires std::is_arithmetic_v<T> TALLY_INLINE explicit operator T() const {
    return static_cast<T>(std::bit_cast<float>(std::uint32_t{bits} << 16));
  }
  TALLY_INLINE bool operator==(Bfloat16 other) const { return static_cast<float>(*this) == static_cast<float>(other); }
};

}  // namespace tally
