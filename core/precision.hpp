// How f32 matmuls read their operands. Sums and results are always f32. Tensor cores take operands of TF32 (10 bits
// after the point) or bfloat16 (7 bits), processors take bfloat16, at many times the rate of f32. core/precision.md
// lists every rounding.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "core/device/backend.hpp"
#include "core/math/math.hpp"

namespace tally {

// The name of each MatmulPrecision, in its order.
inline constexpr std::array<std::string_view, 3> matmul_precision_names{"f32", "tf32", "bf16"};

// To the nearest number with 10 bits after the point, ties away from zero (PTX: cvt.rna.tf32.f32).
TALLY_INLINE float round_to_tf32(float x) {
  constexpr std::uint32_t dropped = 0x1fff, half = 0x1000;
  if (!(std::abs(x) <= 0x1.fffffep127f)) return x;  // infinities and NaN
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + half) & ~dropped);
}

// To the nearest bfloat16, ties to the even one (PTX: cvt.rn.bf16.f32).
TALLY_INLINE float round_to_bf16(float x) {
  constexpr std::uint32_t dropped = 0xffff, below_half = 0x7fff;
  if (!(std::abs(x) <= 0x1.fffffep127f)) return x;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + below_half + (bits >> 16 & 1)) & ~dropped);
}

// x as a matmul of this precision reads it.
template <MatmulPrecision precision, class T>
TALLY_INLINE T rounded(T x) {
  if constexpr (precision == MatmulPrecision::tf32) return round_to_tf32(x);
  if constexpr (precision == MatmulPrecision::bf16) return round_to_bf16(x);
  return x;
}

}  // namespace tally
