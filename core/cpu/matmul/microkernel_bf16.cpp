// The bf16 microkernel for processors without bf16 instructions, and the choice of the fastest one.

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "core/cpu/matmul/microkernel.hpp"
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
    for (std::int64_t x = 0; x < bf16_columns; ++x) y[p * ld_y + x] = pair(x, p);
  }
}

// A product of two bf16 is exact in f32, so a fused and a separate addition give the same bits.
TALLY_CLONES void multiply(std::int64_t depth, RowsOfA a, const std::uint32_t* panel, const SumTile& tile) {
  float s[portable_rows][bf16_columns];
  load_tile(s[0], bf16_columns, portable_rows, tile);
  for (std::int64_t p = 0; p < depth; ++p) {
    float low[bf16_columns], high[bf16_columns];
    for (int j = 0; j < bf16_columns; ++j) {
      low[j] = lower(panel[p * bf16_columns + j]);
      high[j] = upper(panel[p * bf16_columns + j]);
    }
    for (int i = 0; i < portable_rows; ++i) {
      std::uint32_t pair;
      std::memcpy(&pair, a.words + i * a.row_step + p, sizeof pair);  // may be bf16 in a tensor
      const float a_low = lower(pair), a_high = upper(pair);
      for (int j = 0; j < bf16_columns; ++j) s[i][j] = (s[i][j] + a_high * high[j]) + a_low * low[j];
    }
  }
  store_tile(s[0], bf16_columns, tile);
}

struct Choice {
  const Microkernel* kernel;
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
  if (amx && amx_is_permitted()) return {&bf16_amx, {"AMX", ""}};
  const char* const no_amx = amx ? "the system does not permit AMX to this process" : "the processor has no AMX";
  if (has_avx512_bf16()) return {&bf16_avx512, {"AVX-512 BF16", no_amx}};
  return {&bf16_portable, {"f32", formatted("{}{} no AVX-512 BF16", no_amx, amx ? " and" : ",")}};
}
#else
Choice choose() { return {&bf16_portable, {"f32", "no instructions for bf16 are known of this processor"}}; }
#endif

const Choice& choice() {
  static const Choice chosen = choose();
  return chosen;
}

}  // namespace

void load_tile(float* s, std::int64_t ld_s, std::int64_t rows, const SumTile& tile) {
  std::fill_n(s, rows * ld_s, 0.0F);
  for (std::int64_t i = 0; tile.add && i < tile.rows; ++i)
    std::copy_n(tile.c + i * tile.ld_c, tile.columns, s + i * ld_s);
}
void store_tile(const float* s, std::int64_t ld_s, const SumTile& tile) {
  for (std::int64_t i = 0; i < tile.rows; ++i) std::copy_n(s + i * ld_s, tile.columns, tile.c + i * tile.ld_c);
}

constinit const Microkernel bf16_portable{portable_rows, bf16_columns, 2, pack<float>, pack<Bfloat16>, multiply};
const Microkernel& bf16_microkernel() { return *choice().kernel; }

}  // namespace cpu

Bf16Instructions bf16_instructions() { return cpu::choice().instructions; }

}  // namespace tally
