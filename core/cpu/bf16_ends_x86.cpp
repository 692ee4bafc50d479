// What follows the products of bf16 (ProductEnd), in whole vectors of AVX-512, whose instructions for bf16 round. clang
// takes the loops of all processors (core/cpu/bf16_tiles.cpp): it passes no vectors to what it inlines here.
#include "core/cpu/bf16_tiles.hpp"

#if defined(__x86_64__)
#if defined(__clang__)
namespace tally::cpu {
void store_sums_by_avx512_bf16(const float* s, const TileSums& sums) { store_sums(s, sums); }
}  // namespace tally::cpu
#else
#include <algorithm>

#include "core/cpu/bf16_x86.hpp"
#include "core/cpu/gelu_of_bf16.hpp"

namespace tally::cpu {
namespace {

using Lanes = Vector<float, 64>;
constexpr std::int64_t lanes = bf16_lanes;

TALLY_AVX512_BF16_INLINE __m256i rounded(__m512 x) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)); }
TALLY_AVX512_BF16_INLINE __m512 widened(__m256i x) {
  return reinterpret_cast<__m512>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

// f(r = alpha s + bias, i, first column, mask of columns) of every vector of a tile.
template <class F>
TALLY_AVX512_BF16_INLINE void for_each_vector(const float* s, const TileSums& sums, F&& f) {
  const __m512 alpha = _mm512_set1_ps(sums.alpha);
  const std::int64_t rows = sums.rows;
  for (std::int64_t j = 0; j < sums.columns; j += lanes) {
    const __mmask16 there = first(sums.columns - j);
    const __m512 bias = sums.bias != nullptr ? _mm512_maskz_loadu_ps(there, sums.bias + j) : _mm512_setzero_ps();
    for (std::int64_t i = 0; i < rows; ++i) {
      f(_mm512_fmadd_ps(alpha, _mm512_loadu_ps(s + i * tile_columns + j), bias), i, j, there);
    }
  }
}

TALLY_AVX512_BF16 void store_rounded(const float* s, const TileSums& sums) {
  Bfloat16* const c = sums.rounded;
  const std::int64_t ld = sums.ld_c;
  for_each_vector(s, sums, [=](__m512 r, std::int64_t i, std::int64_t j, __mmask16 there) TALLY_AVX512_BF16 {
    _mm256_mask_storeu_epi16(c + i * ld + j, there, rounded(r));
  });
}

TALLY_AVX512_BF16 void store_activated(const float* s, const TileSums& sums) {
  Bfloat16 *const c = sums.rounded, *const arguments = sums.argument;
  const std::int64_t ld = sums.ld_c;
  functors::visit_activation_of_bf16(sums.op, [&](auto op) TALLY_AVX512_BF16 {
    for_each_vector(s, sums, [=](__m512 r, std::int64_t i, std::int64_t j, __mmask16 there) TALLY_AVX512_BF16 {
      const std::int64_t at = i * ld + j;
      const __m256i argument = rounded(r);
      if (arguments != nullptr) _mm256_mask_storeu_epi16(arguments + at, there, argument);
      const Lanes y = op(static_cast<Lanes>(widened(argument)));
      _mm256_mask_storeu_epi16(c + at, there, rounded(y));
    });
  });
}

TALLY_AVX512_BF16 void store_derivative(const float* s, const TileSums& sums) {
  alignas(64) float column_sums[tile_columns] = {};
  if (sums.column_sums != nullptr) std::copy_n(sums.column_sums, sums.columns, column_sums);
  Bfloat16* const c = sums.rounded;
  const Bfloat16* const arguments = sums.argument;
  float* const added = column_sums;
  const std::int64_t ld = sums.ld_c;
  functors::visit_activation_of_bf16(sums.op, [&](auto op) TALLY_AVX512_BF16 {
    for_each_vector(s, sums, [=](__m512 r, std::int64_t i, std::int64_t j, __mmask16 there) TALLY_AVX512_BF16 {
      const std::int64_t at = i * ld + j;
      const Lanes x = widened(_mm256_maskz_loadu_epi16(there, arguments + at));
      const __m512 value = r * op.derivative(x);
      _mm512_store_ps(added + j, _mm512_add_ps(_mm512_load_ps(added + j), value));
      _mm256_mask_storeu_epi16(c + at, there, rounded(value));
    });
  });
  if (sums.column_sums != nullptr) std::copy_n(column_sums, sums.columns, sums.column_sums);
}

}  // namespace

void store_sums_by_avx512_bf16(const float* s, const TileSums& sums) {
  if (sums.rounded == nullptr) return store_sums(s, sums);
  switch (sums.activation) {
    case ProductEnd::Activation::none: return store_rounded(s, sums);
    case ProductEnd::Activation::apply: return store_activated(s, sums);
    case ProductEnd::Activation::derivative: return store_derivative(s, sums);
  }
}

}  // namespace tally::cpu
#endif
#endif
