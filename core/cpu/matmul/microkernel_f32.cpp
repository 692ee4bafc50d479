// A block of some rows and a few vectors of columns of c stays in registers while it walks along k: each element of b
// that is loaded serves all of these rows. Vectors must be no wider than the registers: compilers keep wider ones in
// memory, which takes ten times as long. A block of fewer vectors has more rows, so that enough sums are under way at
// once.
#include "core/cpu/matmul/microkernel_f32.hpp"

#include <algorithm>
#include <cstddef>

#include "core/cpu/instruction_sets.hpp"
#include "core/cpu/matmul/microkernel.hpp"
#include "core/cpu/matmul/transpose.hpp"
#include "core/math/vector.hpp"

namespace tally::cpu {

namespace {

// The matrices of one call, or of a block, from its first row and column on.
template <class T>
struct Operands {
  T* c;
  std::int64_t ld_c;
  const T* a;
  std::int64_t step_m, step_k;
  const T* b;
  std::int64_t ld_b, k;
  bool add;

  TALLY_INLINE Operands at(std::int64_t i, std::int64_t j) const {
    Operands from = *this;
    from.c += i * ld_c + j;
    from.a += i * step_m;
    from.b += j;
    return from;
  }
};

template <class T, int bytes, int rows, int vectors>
TALLY_INLINE void multiply_block(const Operands<T>& of) {
  using V = Vector<T, bytes>;
  constexpr auto lanes = static_cast<std::int64_t>(bytes / sizeof(T));
  V sum[static_cast<std::size_t>(rows)][static_cast<std::size_t>(vectors)];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      sum[i][v] = of.add ? load_vector<V>(of.c + i * of.ld_c + v * lanes) : V{};
    }
  }
  for (std::int64_t x = 0; x < of.k; ++x) {
    V row[static_cast<std::size_t>(vectors)];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) row[v] = load_vector<V>(of.b + x * of.ld_b + v * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      const T factor = of.a[i * of.step_m + x * of.step_k];
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sum[i][v] += factor * row[v];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) store_vector<V>(of.c + i * of.ld_c + v * lanes, sum[i][v]);
  }
}

// In blocks of `rows` rows, then the remainder in blocks of half as many, and so on. `even`: also in blocks of one row
// less, so that no remainder is left.
template <class T, int bytes, int rows, int vectors, bool even = false>
TALLY_INLINE void multiply_columns(const Operands<T>& of, std::int64_t i, std::int64_t m) {
  if constexpr (even) {
    const std::int64_t lower = (rows - m % rows) % rows, high = m - lower * (rows - 1);
    if (high >= 0) {
      for (; i < high; i += rows) multiply_block<T, bytes, rows, vectors>(of.at(i, 0));
      for (; i < m; i += rows - 1) multiply_block<T, bytes, rows - 1, vectors>(of.at(i, 0));
    }
  }
  for (; i + rows <= m; i += rows) multiply_block<T, bytes, rows, vectors>(of.at(i, 0));
  if constexpr (rows > 1) {
    if (i < m) multiply_columns<T, bytes, rows / 2, vectors>(of, i, m);
  }
}

// The columns from j on that fill blocks of `vectors` vectors; returns the first column that is left.
template <class T, int bytes, int rows, int vectors, bool even = false>
TALLY_INLINE std::int64_t multiply_blocks(const Operands<T>& of, std::int64_t m, std::int64_t n, std::int64_t j) {
  constexpr auto width = static_cast<std::int64_t>(bytes / sizeof(T)) * vectors;
  for (; j + width <= n; j += width) multiply_columns<T, bytes, rows, vectors, even>(of.at(0, j), 0, m);
  return j;
}

// For registers of 64, 32 and 16 bytes.
#ifdef TALLY_FOR
template <class T>
TALLY_FOR("v4")
void multiply_in_64(const Operands<T>& of, std::int64_t m, std::int64_t n) {
  std::int64_t j = multiply_blocks<T, 64, 6, 4, true>(of, m, n, 0);
  j = multiply_blocks<T, 64, 8, 2>(of, m, n, j);
  multiply_blocks<T, 64, 8, 1>(of, m, n, j);
}
template <class T>
TALLY_FOR("v3")
void multiply_in_32(const Operands<T>& of, std::int64_t m, std::int64_t n) {
  multiply_blocks<T, 32, 6, 2>(of, m, n, 0);
}
#endif
template <class T>
void multiply_in_16(const Operands<T>& of, std::int64_t m, std::int64_t n) {
  multiply_blocks<T, 16, 2, 4>(of, m, n, 0);
}

constexpr int tile_rows = 48;  // whole blocks of each instruction set

// A tile's rows of a transposed A one k after the other, which is the order of the multiplication; panels of B.
void pack_f32(std::uint32_t* words, std::int64_t ld_y, bool by_x, Unpacked<float> from, std::int64_t count,
              std::int64_t size_k, std::int64_t) {
  auto* const y = reinterpret_cast<float*>(words);
  if (by_x) {
    for (std::int64_t x = 0; x < count; x += tile_rows) {
      const std::int64_t rows = std::min<std::int64_t>(tile_rows, count - x);
      for (std::int64_t k = 0; k < size_k; ++k) std::copy_n(from.at(x, k), rows, y + x * ld_y + k * tile_rows);
    }
    return;
  }
  if (from.step_k == 1) {
    copy_transposed(y, ld_y, from.data, from.step_x, count, size_k, 1.0F);
  } else {
    for (std::int64_t k = 0; k < size_k; ++k) std::copy_n(from.at(0, k), count, y + k * ld_y);
  }
  for (std::int64_t k = 0; k < size_k && count < ld_y; ++k) std::fill(y + k * ld_y + count, y + (k + 1) * ld_y, 0.0F);
}

template <int columns>
void multiply_f32(std::int64_t depth, RowsOfA a, const std::uint32_t* panel, const SumTile& tile) {
  const auto *from = reinterpret_cast<const float*>(a.words), *b = reinterpret_cast<const float*>(panel);
  const std::int64_t whole = round_up(tile.columns, vector_lanes<float>);
  if (whole == tile.columns) {
    return gemm_microkernel(tile.c, tile.ld_c, from, a.row_step, a.depth_step, b, columns, tile.rows, whole, depth,
                            tile.add);
  }
  float s[static_cast<std::size_t>(tile_rows * columns)];
  load_tile(s, columns, tile.rows, tile);
  gemm_microkernel(s, columns, from, a.row_step, a.depth_step, b, columns, tile.rows, whole, depth, true);
  store_tile(s, columns, tile);
}

}  // namespace

int register_bytes() {
#ifdef TALLY_FOR
  static const int bytes = __builtin_cpu_supports("x86-64-v4") ? 64 : __builtin_cpu_supports("x86-64-v3") ? 32 : 16;
  return bytes;
#else
  return 16;
#endif
}

template <class T>
void gemm_microkernel(T* c, std::int64_t ld_c, const T* a, std::int64_t step_m, std::int64_t step_k, const T* b,
                      std::int64_t ld_b, std::int64_t m, std::int64_t n, std::int64_t k, bool add) {
  const Operands<T> of{c, ld_c, a, step_m, step_k, b, ld_b, k, add};
  switch (register_bytes()) {
#ifdef TALLY_FOR
    case 64: return multiply_in_64(of, m, n);
    case 32: return multiply_in_32(of, m, n);
#endif
    default: return multiply_in_16(of, m, n);
  }
}

#define TALLY_INSTANTIATE(T)                                                                                     \
  template void gemm_microkernel(T*, std::int64_t, const T*, std::int64_t, std::int64_t, const T*, std::int64_t, \
                                 std::int64_t, std::int64_t, std::int64_t, bool);
TALLY_INSTANTIATE(float)
TALLY_INSTANTIATE(double)
#undef TALLY_INSTANTIATE

const Microkernel& f32_microkernel() {
  static constexpr Microkernel wide{tile_rows, 64, 1, pack_f32, nullptr, multiply_f32<64>};
  static constexpr Microkernel narrow{tile_rows, 16, 1, pack_f32, nullptr, multiply_f32<16>};
  return register_bytes() == 64 ? wide : narrow;
}

}  // namespace tally::cpu
