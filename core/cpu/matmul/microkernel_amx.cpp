// The bf16 microkernel of AMX: tdpbf16ps multiplies two tiles of 16 rows of 64 bytes and adds to a third. The same code
// also runs with arrays for tiles, which tests it on processors without AMX, except for the seven instructions.
#include <cmath>
#include <cstring>

#include "core/cpu/matmul/microkernel.hpp"

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
};
#endif

// The definition of the instructions (Intel's manual, TDPBF16PS): sums of the even and of the odd elements, each
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
};
thread_local std::uint32_t Arrays::tile[8][side][side];

// Tiles 0 to 3 are sums, 4 and 5 rows of a, 6 and 7 columns of b. `lower`, `right`: whether there are more rows than
// one tile has, and more columns.
template <class Tiles, bool lower, bool right>
void multiply(std::int64_t pairs, const std::uint32_t* a, std::int64_t ld_a, const std::uint32_t* b, bool add, float* s,
              std::int64_t ld_s) {
  constexpr std::int64_t b_step = bf16_columns * sizeof(std::uint32_t);
  const auto bytes = [](std::int64_t elements) { return elements * static_cast<std::int64_t>(sizeof(float)); };
  float* const below = s + side * ld_s;
  if (add) {
    Tiles::template load<0>(s, bytes(ld_s));
    if constexpr (right) Tiles::template load<1>(s + side, bytes(ld_s));
    if constexpr (lower) Tiles::template load<2>(below, bytes(ld_s));
    if constexpr (lower && right) Tiles::template load<3>(below + side, bytes(ld_s));
  } else {
    Tiles::template clear<0>();
    if constexpr (right) Tiles::template clear<1>();
    if constexpr (lower) Tiles::template clear<2>();
    if constexpr (lower && right) Tiles::template clear<3>();
  }
  for (std::int64_t p = 0; p < pairs; p += side) {
    const std::uint32_t* const columns = b + p * bf16_columns;
    Tiles::template load<4>(a + p, bytes(ld_a));
    Tiles::template load<6>(columns, b_step);
    Tiles::template add_product<0, 4, 6>();
    if constexpr (right) Tiles::template load<7>(columns + side, b_step);
    if constexpr (right) Tiles::template add_product<1, 4, 7>();
    if constexpr (lower) Tiles::template load<5>(a + side * ld_a + p, bytes(ld_a));
    if constexpr (lower) Tiles::template add_product<2, 5, 6>();
    if constexpr (lower && right) Tiles::template add_product<3, 5, 7>();
  }
  Tiles::template store<0>(s, bytes(ld_s));
  if constexpr (right) Tiles::template store<1>(s + side, bytes(ld_s));
  if constexpr (lower) Tiles::template store<2>(below, bytes(ld_s));
  if constexpr (lower && right) Tiles::template store<3>(below + side, bytes(ld_s));
}

template <class Tiles>
void multiply(std::int64_t depth, RowsOfA a, const std::uint32_t* panel, const SumTile& tile) {
  static_assert(bf16_columns == 2 * side && bf16_pairs == side);
  const bool lower = tile.rows > side, right = tile.columns > side;
  const auto multiply_to = [&](float* s, std::int64_t ld_s) {
    const auto all = [&]<bool low, bool far>() {
      multiply<Tiles, low, far>(depth, a.words, a.row_step, panel, tile.add, s, ld_s);
    };
    if (lower) return right ? all.template operator()<true, true>() : all.template operator()<true, false>();
    return right ? all.template operator()<false, true>() : all.template operator()<false, false>();
  };
  const bool whole = tile.rows % side == 0 && tile.columns % side == 0;
  if (whole) return multiply_to(tile.c, tile.ld_c);
  alignas(row_bytes) float s[amx_rows * bf16_columns];
  load_tile(s, bf16_columns, amx_rows, tile);
  multiply_to(s, bf16_columns);
  store_tile(s, bf16_columns, tile);
}

}  // namespace

#if defined(__x86_64__)
// Whether the processor has it and the system saves its registers.
bool has_amx_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c >> 27 & 1) == 0) return false;  // OSXSAVE
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d >> 22 & 1) == 0 || (d >> 24 & 1) == 0) return false;
  std::uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low >> 17 & 3) == 3 && has_avx512_bf16();  // which packs for it
}

const Microkernel bf16_amx{amx_rows,         bf16_columns,          2,
                           bf16_avx512.pack, bf16_avx512.pack_bf16, multiply<Registers>,
                           Registers::begin, Registers::end};
#endif

const Microkernel bf16_emulated_amx{amx_rows,        bf16_columns, 2, bf16_portable.pack, bf16_portable.pack_bf16,
                                    multiply<Arrays>};

}  // namespace tally::cpu
