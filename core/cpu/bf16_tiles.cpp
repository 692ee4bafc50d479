// Products of bf16 without instructions for them, and the choice among the kinds.
#include "core/cpu/bf16_tiles.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "core/cpu/gelu_of_bf16.hpp"
#include "core/cpu/parallel.hpp"
#include "core/error.hpp"

namespace tally {
namespace cpu {
namespace {

constexpr int portable_rows = 4;

float lower(std::uint32_t pair) { return std::bit_cast<float>(pair << 16); }
float upper(std::uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000U); }

TALLY_INLINE std::uint32_t bits_of(float x) { return detail::bfloat16_bits(x); }
TALLY_INLINE std::uint32_t bits_of(Bfloat16 x) { return x.bits; }

template <class X>
TALLY_CLONES void pack(std::uint32_t* y, std::int64_t ld_y, bool by_x, Unpacked<X> from, std::int64_t count,
                       std::int64_t size_k, std::int64_t pairs) {
  const auto number = [&](std::int64_t x, std::int64_t k)
                          TALLY_INLINED { return k < size_k && x < count ? bits_of(*from.at(x, k)) : 0; };
  const auto pair = [&](std::int64_t x, std::int64_t p) { return number(x, 2 * p) | number(x, 2 * p + 1) << 16; };
  if (by_x) {
    for (std::int64_t x = 0; x < count; ++x) {
      for (std::int64_t p = 0; p < pairs; ++p) y[x * ld_y + p] = pair(x, p);
    }
    return;
  }
  for (std::int64_t p = 0; p < pairs; ++p) {
    for (std::int64_t x = 0; x < tile_columns; ++x) y[p * ld_y + x] = pair(x, p);
  }
}

// A product of two numbers of bf16 is exact in f32: whether it is fused with the sum or not, the bits are the same.
TALLY_CLONES void multiply(std::int64_t pairs, const std::uint32_t* a, std::int64_t ld_a, const std::uint32_t* b,
                           const TileSums& sums) {
  float s[portable_rows][tile_columns];
  load_sums(s[0], portable_rows, sums);
  for (std::int64_t p = 0; p < pairs; ++p) {
    float low[tile_columns], high[tile_columns];
    for (int j = 0; j < tile_columns; ++j) {
      low[j] = lower(b[p * tile_columns + j]);
      high[j] = upper(b[p * tile_columns + j]);
    }
    for (int i = 0; i < portable_rows; ++i) {
      std::uint32_t pair;
      std::memcpy(&pair, a + i * ld_a + p, sizeof pair);  // of numbers that may be bf16 as they lie in a tensor
      const float a_low = lower(pair), a_high = upper(pair);
      for (int j = 0; j < tile_columns; ++j) s[i][j] = (s[i][j] + a_high * high[j]) + a_low * low[j];
    }
  }
  store_sums(s[0], sums);
}

struct Choice {
  const Bf16Tiles* tiles;
  Bf16Instructions instructions;
};

#if defined(__x86_64__)
// Linux gives the memory of AMX's registers to processes that ask; all their threads may use them then.
bool amx_is_permitted() {
#if defined(__linux__)
  constexpr int request = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request, tile_data) == 0;
#else
  return false;
#endif
}

Choice choose() {
  __builtin_cpu_init();
  const bool amx = has_amx_bf16();
  if (amx && amx_is_permitted()) return {&amx_tiles, {"AMX", ""}};
  const char* const no_amx = amx ? "the system does not permit AMX to this process" : "the processor has no AMX";
  if (has_avx512_bf16()) return {&avx512_bf16_tiles, {"AVX-512 BF16", no_amx}};
  return {&portable_tiles, {"f32", concat(no_amx, amx ? " and" : ",", " no AVX-512 BF16")}};
}
#else
Choice choose() { return {&portable_tiles, {"f32", "no instructions for bf16 are known of this processor"}}; }
#endif

const Choice& choice() {
  static const Choice chosen = choose();
  return chosen;
}

}  // namespace

void load_sums(float* s, std::int64_t rows, const TileSums& sums) {
  std::fill_n(s, rows * tile_columns, 0.0F);
  if (sums.before == nullptr) return;
  for (std::int64_t i = 0; i < sums.rows; ++i)
    std::copy_n(sums.before + i * sums.ld_before, sums.columns, s + i * tile_columns);
}

namespace {

// f(row's sums, row, columns) of each row, with as many columns as a tile has where it has them, which makes vectors.
template <class F>
TALLY_INLINE void for_each_row(const float* s, const TileSums& sums, F&& f) {
  if (sums.columns == tile_columns) {
    for (std::int64_t i = 0; i < sums.rows; ++i) f(s + i * tile_columns, i, tile_columns);
  } else {
    for (std::int64_t i = 0; i < sums.rows; ++i) f(s + i * tile_columns, i, sums.columns);
  }
}

TALLY_CLONES void store_numbers(const float* s, const TileSums& sums) {
  for_each_row(s, sums, [&](const float* row, std::int64_t i, std::int64_t n) TALLY_INLINED {
    float* const c = sums.c + i * sums.ld_c;
    const float* const addend = sums.addend + i * sums.ld_addend;
    for (std::int64_t j = 0; j < n; ++j) {
      const float more = (sums.bias != nullptr ? sums.bias[j] : 0.0F) + (sums.addend != nullptr ? addend[j] : 0.0F);
      c[j] = std::fma(sums.alpha, row[j], more);
    }
  });
}

TALLY_CLONES void store_rounded(const float* s, const TileSums& sums) {
  for_each_row(s, sums, [&](const float* row, std::int64_t i, std::int64_t n) TALLY_INLINED {
    Bfloat16* const c = sums.rounded + i * sums.ld_c;
    for (std::int64_t j = 0; j < n; ++j) {
      const float bias = sums.bias != nullptr ? sums.bias[j] : 0.0F;
      c[j].bits = detail::bfloat16_bits(std::fma(sums.alpha, row[j], bias));
    }
  });
}

TALLY_CLONES void store_activated(const float* s, const TileSums& sums) {
  functors::visit_activation_of_bf16(sums.op, [&](auto op) TALLY_INLINED {
    for_each_row(s, sums, [&](const float* row, std::int64_t i, std::int64_t n) TALLY_INLINED {
      Bfloat16 nowhere[tile_columns];
      Bfloat16* const c = sums.rounded + i * sums.ld_c;
      Bfloat16* const argument = sums.argument != nullptr ? sums.argument + i * sums.ld_c : nowhere;
#pragma omp simd
      for (std::int64_t j = 0; j < n; ++j) {
        const float bias = sums.bias != nullptr ? sums.bias[j] : 0.0F;
        const std::uint16_t bits = detail::bfloat16_bits(std::fma(sums.alpha, row[j], bias));
        argument[j].bits = bits;
        c[j].bits = detail::bfloat16_bits(op(std::bit_cast<float>(std::uint32_t{bits} << 16)));
      }
    });
  });
}

TALLY_CLONES void store_derivative(const float* s, const TileSums& sums) {
  float column_sums[tile_columns] = {};
  if (sums.column_sums != nullptr) std::copy_n(sums.column_sums, sums.columns, column_sums);
  functors::visit_activation_of_bf16(sums.op, [&](auto op) TALLY_INLINED {
    for_each_row(s, sums, [&](const float* row, std::int64_t i, std::int64_t n) TALLY_INLINED {
      Bfloat16* const c = sums.rounded + i * sums.ld_c;
      const Bfloat16* const argument = sums.argument + i * sums.ld_c;
#pragma omp simd
      for (std::int64_t j = 0; j < n; ++j) {
        const float bias = sums.bias != nullptr ? sums.bias[j] : 0.0F;
        const float x = std::bit_cast<float>(std::uint32_t{argument[j].bits} << 16);
        const float value = std::fma(sums.alpha, row[j], bias) * op.derivative(x);
        column_sums[j] += value;
        c[j].bits = detail::bfloat16_bits(value);
      }
    });
  });
  if (sums.column_sums != nullptr) std::copy_n(column_sums, sums.columns, sums.column_sums);
}

}  // namespace

void store_sums(const float* s, const TileSums& sums) {
  switch (sums.activation) {
    case ProductEnd::Activation::none: return sums.rounded != nullptr ? store_rounded(s, sums) : store_numbers(s, sums);
    case ProductEnd::Activation::apply: return store_activated(s, sums);
    case ProductEnd::Activation::derivative: return store_derivative(s, sums);
  }
}

constinit const Bf16Tiles portable_tiles{portable_rows, pack<float>,   pack<Bfloat16>,
                                         multiply,      nothing_to_do, nothing_to_do};
const Bf16Tiles& bf16_tiles() { return *choice().tiles; }

}  // namespace cpu

Bf16Instructions bf16_instructions() { return cpu::choice().instructions; }

}  // namespace tally
