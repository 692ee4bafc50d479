// Microkernels: the innermost loops of a matmul. Each multiplies a few rows of A by a panel of B and writes a tile of
// f32 sums. There is one for each type of operand and instruction set, and one call chooses the fastest.
//
// Operands are packed to words of 32 bits: one f32, or a pair of bf16 with the even k in the lower half and zeros past
// the end. A holds rows of words, B panels of `columns` columns: word d of column j at [d][j].
//
// The order of the additions in a sum defines its bits:
//   f32         s = fma(a[k], b[k], s) in rising k, whatever the instruction set
//   bf16        s = fma(a[2p+1], b[2p+1], s), then s = fma(a[2p], b[2p], s), for p = 0, 1, ...; denormal numbers are
//   zero.
//               This is what `vdpbf16ps` does. Every kernel but AMX follows it.
//   bf16, AMX   16 pairs at a time: e = sum of the products of even k, o = of odd k, each by fma in rising order from
//   0;
//               then s = s + (e + o)
// So a run continues with the same bits on every processor without AMX, and on every processor with it.
#pragma once

#include <cstdint>
#include <string>

#include "core/cpu/matmul/microkernel_f32.hpp"
#include "core/math/bfloat16.hpp"

namespace tally {

// The instruction set of bf16 matmuls, and why not a faster one. Shown by `tally info`.
struct Bf16Instructions {
  std::string name;          // "AMX", "AVX-512 BF16" or "f32"
  std::string why_not_more;  // empty for the first
};
Bf16Instructions bf16_instructions();

namespace cpu {

inline constexpr int bf16_columns = 32;  // of a panel
inline constexpr int bf16_pairs = 16;    // packed bf16 has a multiple of it along k

constexpr std::int64_t divide_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

// Rows of A: word d of row r at words[r row_step + d depth_step].
struct RowsOfA {
  const std::uint32_t* words;
  std::int64_t row_step, depth_step = 1;
};

// Where a microkernel writes its sums.
struct SumTile {
  float* c = nullptr;
  std::int64_t ld_c = 0;
  // Valid rows and columns. 64-bit, because two adjacent 32-bit fields are loaded together and stall on store
  // forwarding.
  std::int64_t rows = 0, columns = 0;
  bool add = false;  // to the sums over the earlier k, in c
};

// A matrix to be packed: element (x, k) at data[x step_x + k step_k]. One of the steps is 1.
template <class X>
struct Unpacked {
  const X* data;
  std::int64_t step_x, step_k;
  const X* at(std::int64_t x, std::int64_t k) const { return data + x * step_x + k * step_k; }
};
// Packs k < size_k of x < count to `depth` words, for A if `by_x`, else for one panel of B, whose missing columns are
// zero. A row of A takes ld_y words: y[x ld_y + d] for bf16; an f32 kernel stores each `rows` rows by k instead.
template <class X>
using Pack = void (*)(std::uint32_t* y, std::int64_t ld_y, bool by_x, Unpacked<X> from, std::int64_t count,
                      std::int64_t size_k, std::int64_t depth);

struct Microkernel {
  int rows, columns;         // of a tile
  int numbers;               // k per word: 1 of f32, 2 of bf16
  Pack<float> pack;          // rounds for bf16
  Pack<Bfloat16> pack_bf16;  // null for f32
  // One tile. A bf16 kernel reads `rows` rows of A, including those that the tile does not want.
  void (*multiply)(std::int64_t depth, RowsOfA a, const std::uint32_t* panel, const SumTile& tile);
  // Called before and after multiply, in the same thread.
  void (*begin)() = [] {};
  void (*end)() = [] {};

  // Number of words that hold k numbers.
  std::int64_t depth(std::int64_t k) const { return numbers == 1 ? k : round_up(divide_up(k, 2), bf16_pairs); }
};

// The fastest of this processor.
const Microkernel& f32_microkernel();
const Microkernel& bf16_microkernel();

extern const Microkernel bf16_portable;  // rounds alike and multiplies in f32
#if defined(__x86_64__)
extern const Microkernel bf16_avx512;  // vdpbf16ps
extern const Microkernel bf16_amx;     // tdpbf16ps
bool has_avx512_bf16();
bool has_amx_bf16();  // also true if the system denies this process its use
#endif
extern const Microkernel bf16_emulated_amx;  // the code of AMX with arrays for its registers, on every processor

// s [rows][ld_s] = the sums in c if the tile adds to them, else zero; c = s.
void load_tile(float* s, std::int64_t ld_s, std::int64_t rows, const SumTile& tile);
void store_tile(const float* s, std::int64_t ld_s, const SumTile& tile);

}  // namespace cpu
}  // namespace tally
