// What the files of AVX-512 BF16 share. Functions are compiled for it one by one: the headers before them are for any
// processor.
#pragma once

#include <immintrin.h>

#include <cstdint>

#define TALLY_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define TALLY_AVX512_BF16_INLINE TALLY_AVX512_BF16 __attribute__((always_inline)) inline
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // of its own header (gcc bug 105593)
#endif

namespace tally::cpu {

inline constexpr std::int64_t bf16_lanes = 16;

// The first n lanes.
TALLY_AVX512_BF16_INLINE __mmask16 first(std::int64_t n) {
  return n >= bf16_lanes ? __mmask16{0xffff} : n <= 0 ? __mmask16{0} : static_cast<__mmask16>((1U << n) - 1);
}

}  // namespace tally::cpu
