// bfloat16: the upper half of an f32, with its range and 7 bits after the point. A type for storage and matmul
// operands, not for arithmetic: sums of bf16 numbers are f32. The conversion uses integer operations only, on the host
// and on the device, so the result does not depend on the floating-point mode.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/math/inline.hpp"

namespace tally {

namespace detail {

// The upper half of an f32: rounded to nearest, ties to even; numbers beyond the largest become infinity. Subnormal
// numbers become zero with the same sign, as in the conversion instructions. A NaN stays a quiet NaN with its sign.
TALLY_INLINE std::uint16_t bfloat16_bits(double x) {
  constexpr int fraction = 52, dropped = fraction - 7;
  constexpr std::uint64_t one = 1, infinity = std::uint64_t{0x7ff} << fraction;
  constexpr std::uint64_t bias = 1023 - 127;  // exponent bias of f64 minus that of f32
  constexpr std::uint64_t least = (bias + 1) << fraction, end = (bias + 255) << fraction;
  const auto bits = std::bit_cast<std::uint64_t>(x), size = bits & ~(one << 63);
  const std::uint64_t nearest =
      (size - (bias << fraction) + (one << (dropped - 1)) - 1 + (size >> dropped & 1)) >> dropped;
  std::uint64_t result = size < least ? 0 : size < end ? nearest : 0x7f80;
  result = size > infinity ? 0x7fc0 | (size >> dropped & 0x3f) : result;
  return static_cast<std::uint16_t>(result | (bits != size ? 0x8000 : 0));
}
// Branch-free, so that compilers vectorise loops of it. Rounding up beyond the largest number gives infinity without a
// test.
TALLY_INLINE std::uint16_t bfloat16_bits(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x), size = bits & 0x7fffffffU;
  std::uint32_t result = (size + 0x7fffU + (size >> 16 & 1U)) >> 16;
  result = size < 0x00800000U ? 0U : result;
  result = size > 0x7f800000U ? (0x7fc0U | (size >> 16 & 0x3fU)) : result;
  return static_cast<std::uint16_t>(result | (bits >> 16 & 0x8000U));
}

}  // namespace detail

struct Bfloat16 {
  std::uint16_t bits = 0;

  Bfloat16() = default;
  // A whole number is rounded as the nearest f64 would be.
  template <class T>
  requires std::is_arithmetic_v<T> TALLY_INLINE explicit Bfloat16(T x)
      : bits(detail::bfloat16_bits(static_cast<std::conditional_t<std::is_same_v<T, float>, float, double>>(x))) {}
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
