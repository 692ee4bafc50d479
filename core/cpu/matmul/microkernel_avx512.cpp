// The bf16 microkernel of AVX-512 BF16 (vdpbf16ps), whose packing AMX shares.
#include "core/cpu/matmul/microkernel.hpp"

#if defined(__x86_64__)
#include <cpuid.h>

#include <immintrin.h>

#include <cstring>

// Functions are compiled for AVX-512 one by one: the headers before them are for any processor.
#define TALLY_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define TALLY_AVX512_BF16_INLINE TALLY_AVX512_BF16 __attribute__((always_inline)) inline
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // of its own header (gcc bug 105593)
#endif
#if defined(__clang__)
#define TALLY_UNROLL _Pragma("unroll")
#else
#define TALLY_UNROLL _Pragma("GCC unroll 16")
#endif

namespace tally::cpu {
namespace {

constexpr int lanes = 16, avx512_rows = 12;

// The first n lanes.
TALLY_AVX512_BF16_INLINE __mmask16 first(std::int64_t n) {
  return n >= lanes ? __mmask16{0xffff} : n <= 0 ? __mmask16{0} : static_cast<__mmask16>((1U << n) - 1);
}

// Transposes 16 vectors of 16 lanes: rows become columns.
TALLY_AVX512_BF16_INLINE void transpose(__m512i (&x)[lanes]) {
  __m512i y[lanes];
  TALLY_UNROLL
  for (int i = 0; i < lanes; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
  TALLY_UNROLL
  for (int i = 0; i < lanes; i += 4) {
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
  TALLY_UNROLL
  for (int i = 0; i < 4; ++i) {
    y[i] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
    y[i + 4] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
    y[i + 8] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
    y[i + 12] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
  }
  TALLY_UNROLL
  for (int i = 0; i < 4; ++i) {
    x[i] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0x88);
    x[i + 4] = _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0x88);
    x[i + 8] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0xdd);
    x[i + 12] = _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0xdd);
  }
}

// 16 pairs of neighbouring numbers. Only the first `numbers` are read; the others are zero.
TALLY_AVX512_BF16_INLINE __m512i pairs_along(const float* row, std::int64_t numbers) {
  const __m512 even = _mm512_maskz_loadu_ps(first(numbers), row);
  const __m512 odd = _mm512_maskz_loadu_ps(first(numbers - lanes), row + lanes);
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
}
TALLY_AVX512_BF16_INLINE __m512i pairs_along(const Bfloat16* row, std::int64_t numbers) {
  const auto there = static_cast<__mmask32>(first(numbers)) | static_cast<__mmask32>(first(numbers - lanes)) << lanes;
  return _mm512_maskz_loadu_epi16(there, row);
}
// Interleaves the 16 numbers of the lower half with the 16 of the upper half: 16 pairs.
TALLY_AVX512_BF16_INLINE __m512i paired(__m512i x) {
  const __m512i turns = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(turns, x);
}
// 16 pairs of one number from each row; masked numbers are zero.
TALLY_AVX512_BF16_INLINE __m512i pairs_across(const float* low, const float* high, __mmask16 of_low,
                                              __mmask16 of_high) {
  const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(of_high, high), _mm512_maskz_loadu_ps(of_low, low));
  return paired(reinterpret_cast<__m512i>(both));
}
TALLY_AVX512_BF16_INLINE __m512i pairs_across(const Bfloat16* low, const Bfloat16* high, __mmask16 of_low,
                                              __mmask16 of_high) {
  const __m512i lower = _mm512_castsi256_si512(_mm256_maskz_loadu_epi16(of_low, low));
  return paired(_mm512_inserti64x4(lower, _mm256_maskz_loadu_epi16(of_high, high), 1));
}

// Packs squares of 16 columns by 16 pairs in memory order. Numbers outside the matrix are not read, and count as zero.
template <class X>
TALLY_AVX512_BF16 void pack(std::uint32_t* y, std::int64_t ld_y, bool by_x, Unpacked<X> from, std::int64_t count,
                            std::int64_t size_k, std::int64_t pairs) {
  const bool along = from.step_k == 1;
  const std::int64_t width = by_x ? count : bf16_columns;
  const std::int64_t outer = along ? width : pairs, inner = along ? pairs : width;
  for (std::int64_t out = 0; out < outer; out += lanes) {
    for (std::int64_t in = 0; in < inner; in += lanes) {
      const std::int64_t x = along ? out : in, p = along ? in : out, k = 2 * p;
      __m512i square[lanes];
      if (along) {  // a vector has the pairs of one x
        TALLY_UNROLL
        for (int i = 0; i < lanes; ++i) {
          const X* const row = from.at(x + i, k);
          __builtin_prefetch(row + lanes * from.step_x);
          __builtin_prefetch(row + lanes * from.step_x + lanes);
          square[i] = pairs_along(row, x + i < count ? size_k - k : 0);
        }
      } else {  // a vector has one pair of 16 x
        TALLY_UNROLL
        for (int i = 0; i < lanes; ++i) {
          const __mmask16 there = first(count - x);
          const X* const row = from.at(x, k + 2 * i);
          // Rows far apart are no stream that processors see.
          __builtin_prefetch(row + 2 * lanes * from.step_k);
          __builtin_prefetch(row + (2 * lanes + 1) * from.step_k);
          square[i] = pairs_across(row, row + from.step_k, k + 2 * i < size_k ? there : __mmask16{0},
                                   k + 2 * i + 1 < size_k ? there : __mmask16{0});
        }
      }
      if (along != by_x) transpose(square);
      const std::int64_t stored = by_x && count - x < lanes ? count - x : lanes;
      std::uint32_t* const to = by_x ? y + x * ld_y + p : y + p * ld_y + x;
      for (std::int64_t i = 0; i < stored; ++i) _mm512_storeu_si512(to + i * ld_y, square[i]);
    }
  }
}

// One pair of A. A may be a bf16 tensor read in place, so the address need not be aligned to 4 bytes.
TALLY_AVX512_BF16_INLINE int pair_at(const std::uint32_t* pair) {
  int bits;
  std::memcpy(&bits, pair, sizeof bits);
  return bits;
}

// 24 sums of 16 columns stay in registers.
TALLY_AVX512_BF16 void multiply(std::int64_t depth, RowsOfA a, const std::uint32_t* panel, const SumTile& tile) {
  constexpr int vectors = bf16_columns / lanes;
  const __mmask16 columns[vectors] = {first(tile.columns), first(tile.columns - lanes)};
  __m512 s[avx512_rows][vectors];
  TALLY_UNROLL
  for (int i = 0; i < avx512_rows; ++i) {
    TALLY_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const bool there = tile.add && i < tile.rows;
      s[i][v] = there ? _mm512_maskz_loadu_ps(columns[v], tile.c + i * tile.ld_c + v * lanes) : _mm512_setzero_ps();
    }
  }
  const std::uint32_t* const words = a.words;
  const std::int64_t ld_a = a.row_step;
  const std::uint32_t *a_0 = words, *a_3 = words + 3 * ld_a, *a_6 = words + 6 * ld_a, *a_9 = words + 9 * ld_a;
  for (std::int64_t p = 0; p < depth; ++p) {
    const auto b_0 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(panel));
    const auto b_1 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(panel + lanes));
    TALLY_UNROLL
    for (int i = 0; i < avx512_rows; ++i) {
      const std::uint32_t* const rows = i < 3 ? a_0 : i < 6 ? a_3 : i < 9 ? a_6 : a_9;
      const auto pair = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair_at(rows + i % 3 * ld_a)));
      s[i][0] = _mm512_dpbf16_ps(s[i][0], pair, b_0);
      s[i][1] = _mm512_dpbf16_ps(s[i][1], pair, b_1);
    }
    ++a_0, ++a_3, ++a_6, ++a_9;
    panel += bf16_columns;
  }
  TALLY_UNROLL
  for (int i = 0; i < avx512_rows; ++i) {
    if (i >= tile.rows) break;
    TALLY_UNROLL
    for (int v = 0; v < vectors; ++v) _mm512_mask_storeu_ps(tile.c + i * tile.ld_c + v * lanes, columns[v], s[i][v]);
  }
}

}  // namespace

bool has_avx512_bf16() {
  __builtin_cpu_init();
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool known = __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0;
  return known && (a >> 5 & 1) != 0 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

constinit const Microkernel bf16_avx512{avx512_rows, bf16_columns, 2, pack<float>, pack<Bfloat16>, multiply};

}  // namespace tally::cpu
#endif
