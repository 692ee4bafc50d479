// Products of bf16 by AMX: tiles of 16 rows of 64 bytes, of which tdpbf16ps multiplies two and adds to a third. The
// same code runs with arrays for tiles, so that what it does is tested on processors without AMX; there only the seven
// instructions themselves go untested.
#include <cmath>
#include <cstring>

#include "core/cpu/bf16_tiles.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tally::cpu {
namespace {

constexpr int side = 16, row_bytes = 64, amx_rows = 2 * side;

#if defined(__x86_64__)
// By their names, as compilers differ in how intrinsics ask for the instruction set.
struct Registers {
  template <int n>
  static void load(const void* data, std::int64_t row_step) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(data), "r"(row_step), "i"(n) : "memory");
  }
  template <int n>
  static void store(void* data, std::int64_t row_step) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(data), "r"(row_step), "i"(n) : "memory");
  }
  template <int n>
  static void clear() {
    asm volatile("tilezero %%tmm%c0" : : "i"(n));
  }
  template <int c, int a, int b>
  static void add_product() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
  // All tiles are as large as they can be.
  static void begin() {
    struct {
      std::uint8_t palette = 1, first_row = 0, reserved[14] = {};
      std::uint16_t bytes[16] = {};
      std::uint8_t rows[16] = {};
    } shapes;
    static_assert(sizeof shapes == 64);
    for (int n = 0; n < 8; ++n) {
      shapes.bytes[n] = row_bytes;
      shapes.rows[n] = side;
    }
    asm volatile("ldtilecfg %0" : : "m"(shapes));
  }
  static void end() { asm volatile("tilerelease"); }
  static void write(const float* s, const TileSums& sums) { store_sums_by_avx512_bf16(s, sums); }
};
#endif

// What the instructions are defined to do (Intel's manual, TDPBF16PS): sums of the even and of the odd elements, each
// by fma, which are added up at the end.
struct Arrays {
  static thread_local std::uint32_t tile[8][side][side];

  template <int n>
  static void load(const void* data, std::int64_t row_step) {
    for (int i = 0; i < side; ++i) std::memcpy(tile[n][i], static_cast<const char*>(data) + i * row_step, row_bytes);
  }
  template <int n>
  static void store(void* data, std::int64_t row_step) {
    for (int i = 0; i < side; ++i) std::memcpy(static_cast<char*>(data) + i * row_step, tile[n][i], row_bytes);
  }
  template <int n>
  static void clear() {
    std::memset(tile[n], 0, sizeof tile[n]);
  }
  template <int c, int a, int b>
  static void add_product() {
    const auto number = [](std::uint32_t bits) {
      float x;
      std::memcpy(&x, &bits, sizeof x);
      return x;
    };
    for (int i = 0; i < side; ++i) {
      for (int j = 0; j < side; ++j) {
        float even = 0, odd = 0;
        for (int p = 0; p < side; ++p) {
          const std::uint32_t x = tile[a][i][p], y = tile[b][p][j];
          even = std::fma(number(x << 16), number(y << 16), even);
          odd = std::fma(number(x & 0xffff0000U), number(y & 0xffff0000U), odd);
        }
        const float sum = number(tile[c][i][j]) + (even + odd);
        std::memcpy(&tile[c][i][j], &sum, sizeof sum);
      }
    }
  }
  static void write(const float* s, const TileSums& sums) { store_sums(s, sums); }
};
thread_local std::uint32_t Arrays::tile[8][side][side];

// Tiles 0 to 3 are sums, 4 and 5 rows of a, 6 and 7 columns of b. `lower`, `right`: whether there are more rows than
// one tile has, and more columns.
template <class Tiles, bool lower, bool right>
void multiply(std::int64_t pairs, const std::uint32_t* a, std::int64_t ld_a, const std::uint32_t* b,
              const float* before, std::int64_t ld_before, float* s, std::int64_t ld_s) {
  constexpr std::int64_t b_step = tile_columns * sizeof(std::uint32_t);
  const auto bytes = [](std::int64_t elements) { return elements * static_cast<std::int64_t>(sizeof(float)); };
  if (before != nullptr) {
    const float* const below = before + side * ld_before;
    Tiles::template load<0>(before, bytes(ld_before));
    if constexpr (right) Tiles::template load<1>(before + side, bytes(ld_before));
    if constexpr (lower) Tiles::template load<2>(below, bytes(ld_before));
    if constexpr (lower && right) Tiles::template load<3>(below + side, bytes(ld_before));
  } else {
    Tiles::template clear<0>();
    if constexpr (right) Tiles::template clear<1>();
    if constexpr (lower) Tiles::template clear<2>();
    if constexpr (lower && right) Tiles::template clear<3>();
  }
  for (std::int64_t p = 0; p < pairs; p += side) {
    const std::uint32_t* const columns = b + p * tile_columns;
    Tiles::template load<4>(a + p, bytes(ld_a));
    Tiles::template load<6>(columns, b_step);
    Tiles::template add_product<0, 4, 6>();
    if constexpr (right) Tiles::template load<7>(columns + side, b_step);
    if constexpr (right) Tiles::template add_product<1, 4, 7>();
    if constexpr (lower) Tiles::template load<5>(a + side * ld_a + p, bytes(ld_a));
    if constexpr (lower) Tiles::template add_product<2, 5, 6>();
    if constexpr (lower && right) Tiles::template add_product<3, 5, 7>();
  }
  float* const below = s + side * ld_s;
  Tiles::template store<0>(s, bytes(ld_s));
  if constexpr (right) Tiles::template store<1>(s + side, bytes(ld_s));
  if constexpr (lower) Tiles::template store<2>(below, bytes(ld_s));
  if constexpr (lower && right) Tiles::template store<3>(below + side, bytes(ld_s));
}

template <class Tiles>
void multiply(std::int64_t pairs, const std::uint32_t* a, std::int64_t ld_a, const std::uint32_t* b,
              const TileSums& sums) {
  static_assert(tile_columns == 2 * side && tile_pairs == side);
  const bool lower = sums.rows > side, right = sums.columns > side;
  const auto from_to = [&](const float* before, std::int64_t ld_before, float* s, std::int64_t ld_s) {
    const auto all = [&]<bool low, bool far>() {
      multiply<Tiles, low, far>(pairs, a, ld_a, b, before, ld_before, s, ld_s);
    };
    if (lower) return right ? all.template operator()<true, true>() : all.template operator()<true, false>();
    return right ? all.template operator()<false, true>() : all.template operator()<false, false>();
  };
  const bool whole = sums.rows % side == 0 && sums.columns % side == 0;
  const bool as_they_are = sums.alpha == 1 && sums.bias == nullptr && sums.addend == nullptr && sums.rounded == nullptr;
  // To be written when the sums are there; what they begin with is near.
  for (std::int64_t i = 0; i < sums.rows && sums.before == nullptr; ++i) {
    if (sums.rounded != nullptr) {
      __builtin_prefetch(sums.rounded + i * sums.ld_c, 1);
      if (sums.argument != nullptr) __builtin_prefetch(sums.argument + i * sums.ld_c);
      continue;
    }
    __builtin_prefetch(sums.c + i * sums.ld_c, 1);
    __builtin_prefetch(sums.c + i * sums.ld_c + side, 1);
    if (sums.addend == nullptr) continue;
    __builtin_prefetch(sums.addend + i * sums.ld_addend);
    __builtin_prefetch(sums.addend + i * sums.ld_addend + side);
  }
  alignas(row_bytes) float s[amx_rows * tile_columns];
  const float* before = sums.before;
  std::int64_t ld_before = sums.ld_before;
  if (before != nullptr && !whole) {
    load_sums(s, amx_rows, sums);
    before = s;
    ld_before = tile_columns;
  }
  if (whole && as_they_are) return from_to(before, ld_before, sums.c, sums.ld_c);
  from_to(before, ld_before, s, tile_columns);
  Tiles::write(s, sums);
}

}  // namespace

#if defined(__x86_64__)
// That the processor has it, and that the system keeps its registers.
bool has_amx_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c >> 27 & 1) == 0) return false;  // OSXSAVE
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d >> 22 & 1) == 0 || (d >> 24 & 1) == 0) return false;
  std::uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low >> 17 & 3) == 3 && has_avx512_bf16();  // which packs for it
}

const Bf16Tiles amx_tiles{amx_rows,         avx512_bf16_tiles.pack, avx512_bf16_tiles.pack_bf16, multiply<Registers>,
                          Registers::begin, Registers::end};
#endif

const Bf16Tiles emulated_amx_tiles{amx_rows,         portable_tiles.pack, portable_tiles.pack_bf16,
                                   multiply<Arrays>, nothing_to_do,       nothing_to_do};

}  // namespace tally::cpu
