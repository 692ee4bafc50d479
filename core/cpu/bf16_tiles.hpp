// Tiles of a matrix product whose operands are rounded to bf16 while they are packed, or are bf16, and whose sums are
// f32: one table of functions for each kind of instructions, of which the processor's best is taken.
//
// Packed is a pair of numbers along the inner axis, k = 2p in the lower half of 32 bits and k = 2p + 1 in the upper
// one, with zeros where there are none. Operand a lies row by row, b in panels of tile_columns, pair by pair.
//
// The order of a sum, by which its bits are defined:
//   pairs    s = fma(a[2p+1], b[2p+1], s), then s = fma(a[2p], b[2p], s), for p = 0, 1, ... from s = 0, each rounded to
//            nearest and below the normal numbers zero: what `vdpbf16ps` does, and what every path but AMX's has
//   halves   of 16 pairs at a time, those of AMX: e = sum of the products of even k, o = of odd k, each by fma in
//   rising
//            order from 0; then s = s + (e + o)
// so that a run goes on with the same bits on every processor without AMX, and on every one with it.
#pragma once

#include <cstdint>
#include <string>

#include "core/bfloat16.hpp"
#include "core/kernels.hpp"

namespace tally {

// What the products of bf16 run on, and why on nothing faster, for `tally info`.
struct Bf16Instructions {
  std::string name;          // "AMX", "AVX-512 BF16" or "f32"
  std::string why_not_more;  // empty for the first
};
Bf16Instructions bf16_instructions();

namespace cpu {

inline constexpr int tile_columns = 32;
inline constexpr int tile_pairs = 16;  // packed pairs are a multiple of it

// Where a tile of sums comes from and goes to: c = alpha s + bias + addend, or what ProductEnd says of an activation.
struct TileSums {
  float* c = nullptr;
  Bfloat16* rounded = nullptr;  // instead of c, without an addend
  std::int64_t ld_c = 0;        // of either
  // Of the tile, not more than it has. As wide as registers: two that are read at once wait for all stores before them.
  std::int64_t rows = 0, columns = 0;
  const float* before = nullptr;  // sums of the pairs before these; null: none
  std::int64_t ld_before = 0;
  float alpha = 1;
  const float* bias = nullptr;    // [columns] or null
  const float* addend = nullptr;  // may be c; null: none
  std::int64_t ld_addend = 0;
  // Of what is rounded, as ProductEnd has them; the argument's rows lie ld_c apart, and it may be null if op is
  // applied.
  ProductEnd::Activation activation = ProductEnd::Activation::none;
  UnaryOp op = UnaryOp::gelu;
  Bfloat16* argument = nullptr;
  float* column_sums = nullptr;  // [columns], to which the tile's are added row by row; null: none

  // Whether all that is written is one number of f32 or bf16 for each sum.
  bool is_plain() const { return activation == ProductEnd::Activation::none && (addend == nullptr || addend == c); }
};

// A matrix to be packed: element (x, k) stands at data[x step_x + k step_k], one of the steps being 1. X: float, which
// is rounded, or Bfloat16.
template <class X>
struct Unpacked {
  const X* data;
  std::int64_t step_x, step_k;
  const X* at(std::int64_t x, std::int64_t k) const { return data + x * step_x + k * step_k; }
};
// y[x ld_y + p] for `by_x`, else y[p ld_y + x]: pairs p < pairs (a multiple of tile_pairs) of columns x < count.
// Elements k >= size_k are zero; for !by_x so are those of x from count to tile_columns.
template <class X>
using Pack = void (*)(std::uint32_t* y, std::int64_t ld_y, bool by_x, Unpacked<X> from, std::int64_t count,
                      std::int64_t size_k, std::int64_t pairs);

struct Bf16Tiles {
  int rows;
  Pack<float> pack;
  Pack<Bfloat16> pack_bf16;
  // a: `rows` rows ld_a apart, whatever stands in those that sums does not want, or numbers of bf16 as they lie in a
  // tensor; b: a panel.
  void (*multiply)(std::int64_t pairs, const std::uint32_t* a, std::int64_t ld_a, const std::uint32_t* b,
                   const TileSums& sums);
  // Around calls of multiply, in the thread that makes them.
  void (*begin)();
  void (*end)();
};

// The processor's best; chosen when it is first asked for.
const Bf16Tiles& bf16_tiles();

// Of all processors: the same rounding, and sums of pairs in f32.
extern const Bf16Tiles portable_tiles;
#if defined(__x86_64__)
extern const Bf16Tiles avx512_bf16_tiles;  // vdpbf16ps
extern const Bf16Tiles amx_tiles;          // tdpbf16ps
bool has_avx512_bf16();
bool has_amx_bf16();  // whether or not the system lets this process use it
#endif
// The code of AMX with its registers as arrays, which runs everywhere.
extern const Bf16Tiles emulated_amx_tiles;

// Writes the sums s, rows tile_columns apart.
void store_sums(const float* s, const TileSums& sums);
#if defined(__x86_64__)
void store_sums_by_avx512_bf16(const float* s, const TileSums& sums);
#endif
// The sums before these, or zeros, in the first `rows` rows of s.
void load_sums(float* s, std::int64_t rows, const TileSums& sums);
inline void nothing_to_do() {}

}  // namespace cpu
}  // namespace tally
