// One block of a product holds some rows of c in registers, a few vectors of each, while it walks along k: every
// element of b that is loaded serves all of these rows. At the sizes of a tile that is as fast as a BLAS, without its
// copies. Vectors must be no wider than the registers: compilers keep wider ones in memory, which takes ten times as
// long. The fewer vectors a block is wide, the more rows it has, so that enough sums are under way at once; more than
// 8, and a tile's 64 rows would leave some over.
#include "core/cpu/lane_product.hpp"

#include <cstddef>

#include "core/cpu/instruction_sets.hpp"
#include "core/inline.hpp"

namespace tally::cpu {

namespace {

// At any address.
template <class T, int bytes>
struct VectorOf;
#define TALLY_VECTOR(T, bytes)                                                          \
  template <>                                                                           \
  struct VectorOf<T, bytes> {                                                           \
    typedef T Type __attribute__((vector_size(bytes), aligned(alignof(T)), may_alias)); \
  };
TALLY_VECTOR(float, 64)
TALLY_VECTOR(float, 32)
TALLY_VECTOR(float, 16)
TALLY_VECTOR(double, 64)
TALLY_VECTOR(double, 32)
TALLY_VECTOR(double, 16)
#undef TALLY_VECTOR

// What a product reads and writes; of a block from its first row and column on.
template <class T>
struct Operands {
  T* c;
  std::int64_t ld_c;
  const T* start;
  std::int64_t ld_start;
  const T* a;
  std::int64_t step_m, step_k;
  const T* b;
  std::int64_t ld_b, k;

  TALLY_INLINE Operands at(std::int64_t i, std::int64_t j) const {
    Operands from = *this;
    from.c += i * ld_c + j;
    from.start += start != nullptr ? i * ld_start + j : 0;
    from.a += i * step_m;
    from.b += j;
    return from;
  }
};

template <class T, int bytes, int rows, int vectors>
TALLY_INLINE void product_block(const Operands<T>& of) {
  using Vector = typename VectorOf<T, bytes>::Type;
  constexpr auto lanes = static_cast<std::int64_t>(bytes / sizeof(T));
  Vector sum[static_cast<std::size_t>(rows)][static_cast<std::size_t>(vectors)];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      sum[i][v] =
          of.start != nullptr ? *reinterpret_cast<const Vector*>(of.start + i * of.ld_start + v * lanes) : Vector{};
    }
  }
  for (std::int64_t x = 0; x < of.k; ++x) {
    Vector row[static_cast<std::size_t>(vectors)];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) row[v] = *reinterpret_cast<const Vector*>(of.b + x * of.ld_b + v * lanes);
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
    for (int v = 0; v < vectors; ++v) *reinterpret_cast<Vector*>(of.c + i * of.ld_c + v * lanes) = sum[i][v];
  }
}

// In blocks of as many rows; those that are left over in blocks of half as many, and so on. `even`: in blocks of one
// row less beside them, so that nothing is left over.
template <class T, int bytes, int rows, int vectors, bool even = false>
TALLY_INLINE void product_columns(const Operands<T>& of, std::int64_t i, std::int64_t m) {
  if constexpr (even) {
    const std::int64_t lower = (rows - m % rows) % rows, high = m - lower * (rows - 1);
    if (high >= 0) {
      for (; i < high; i += rows) product_block<T, bytes, rows, vectors>(of.at(i, 0));
      for (; i < m; i += rows - 1) product_block<T, bytes, rows - 1, vectors>(of.at(i, 0));
    }
  }
  for (; i + rows <= m; i += rows) product_block<T, bytes, rows, vectors>(of.at(i, 0));
  if constexpr (rows > 1) {
    if (i < m) product_columns<T, bytes, rows / 2, vectors>(of, i, m);
  }
}

// The columns from j on that blocks of so many vectors take.
template <class T, int bytes, int rows, int vectors, bool even = false>
TALLY_INLINE std::int64_t product_blocks(const Operands<T>& of, std::int64_t m, std::int64_t n, std::int64_t j) {
  constexpr auto width = static_cast<std::int64_t>(bytes / sizeof(T)) * vectors;
  for (; j + width <= n; j += width) product_columns<T, bytes, rows, vectors, even>(of.at(0, j), 0, m);
  return j;
}

// For registers of 64, 32 and 16 bytes.
#ifdef TALLY_FOR
template <class T>
TALLY_FOR("v4")
void product_in_64(const Operands<T>& of, std::int64_t m, std::int64_t n) {
  std::int64_t j = product_blocks<T, 64, 6, 4, true>(of, m, n, 0);
  j = product_blocks<T, 64, 8, 2>(of, m, n, j);
  product_blocks<T, 64, 8, 1>(of, m, n, j);
}
template <class T>
TALLY_FOR("v3")
void product_in_32(const Operands<T>& of, std::int64_t m, std::int64_t n) {
  product_blocks<T, 32, 6, 2>(of, m, n, 0);
}
#endif
template <class T>
void product_in_16(const Operands<T>& of, std::int64_t m, std::int64_t n) {
  product_blocks<T, 16, 2, 4>(of, m, n, 0);
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
void lane_product(T* c, std::int64_t ld_c, const T* start, std::int64_t ld_start, const T* a, std::int64_t step_m,
                  std::int64_t step_k, const T* b, std::int64_t ld_b, std::int64_t m, std::int64_t n, std::int64_t k) {
  const Operands<T> of{c, ld_c, start, ld_start, a, step_m, step_k, b, ld_b, k};
  switch (register_bytes()) {
#ifdef TALLY_FOR
    case 64: return product_in_64(of, m, n);
    case 32: return product_in_32(of, m, n);
#endif
    default: return product_in_16(of, m, n);
  }
}

#define TALLY_INSTANTIATE(T)                                                                                           \
  template void lane_product(T*, std::int64_t, const T*, std::int64_t, const T*, std::int64_t, std::int64_t, const T*, \
                             std::int64_t, std::int64_t, std::int64_t, std::int64_t);
TALLY_INSTANTIATE(float)
TALLY_INSTANTIATE(double)
#undef TALLY_INSTANTIATE

}  // namespace tally::cpu
