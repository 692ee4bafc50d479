// Products and transpositions of attention's tiles.
//
// One block of a product holds some rows of c in registers, a few vectors of each, while it walks along k: every
// element of b that is loaded serves all of these rows. At the sizes of a tile that is as fast as a BLAS, without its
// copies. Vectors must be no wider than the registers: compilers keep wider ones in memory, which takes ten times as
// long.
#include "core/cpu/attention_tile.hpp"

#include "core/math.hpp"

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

template <class T, int bytes, int rows, int vectors>
TALLY_INLINE void product_block(T* c, std::int64_t ld_c, const T* a, std::int64_t step_m, std::int64_t step_k,
                                const T* b, std::int64_t ld_b, std::int64_t k, bool accumulate) {
  using Vector = typename VectorOf<T, bytes>::Type;
  constexpr auto lanes = static_cast<std::int64_t>(bytes / sizeof(T));
  Vector sum[static_cast<std::size_t>(rows)][static_cast<std::size_t>(vectors)];
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      sum[i][v] = accumulate ? *reinterpret_cast<const Vector*>(c + i * ld_c + v * lanes) : Vector{};
    }
  }
  for (std::int64_t x = 0; x < k; ++x) {
    Vector row[static_cast<std::size_t>(vectors)];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) row[v] = *reinterpret_cast<const Vector*>(b + x * ld_b + v * lanes);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const T factor = a[i * step_m + x * step_k];
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sum[i][v] += factor * row[v];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) *reinterpret_cast<Vector*>(c + i * ld_c + v * lanes) = sum[i][v];
  }
}

template <class T, int bytes, int rows, int vectors>
TALLY_INLINE void product_columns(T* c, std::int64_t ld_c, const T* a, std::int64_t step_m, std::int64_t step_k,
                                  const T* b, std::int64_t ld_b, std::int64_t m, std::int64_t k, bool accumulate) {
  std::int64_t i = 0;
  for (; i + rows <= m; i += rows) {
    product_block<T, bytes, rows, vectors>(c + i * ld_c, ld_c, a + i * step_m, step_m, step_k, b, ld_b, k, accumulate);
  }
  for (; i < m; ++i) {
    product_block<T, bytes, 1, vectors>(c + i * ld_c, ld_c, a + i * step_m, step_m, step_k, b, ld_b, k, accumulate);
  }
}

// Of the registers for which the code that runs was compiled.
int register_bytes() {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(TALLY_SANITIZED)
  static const int bytes = __builtin_cpu_supports("x86-64-v4") ? 64 : __builtin_cpu_supports("x86-64-v3") ? 32 : 16;
  return bytes;
#else
  return 16;
#endif
}

template <class T>
TALLY_CLONES void product_in_lanes(T* c, std::int64_t ld_c, const T* a, std::int64_t step_m, std::int64_t step_k,
                                   const T* b, std::int64_t ld_b, std::int64_t m, std::int64_t n, std::int64_t k,
                                   bool accumulate, int bytes) {
  constexpr std::int64_t lanes = vector_lanes<T>;
  std::int64_t j = 0;
  for (; bytes == 64 && j + 4 * lanes <= n; j += 4 * lanes) {
    product_columns<T, 64, 4, 4>(c + j, ld_c, a, step_m, step_k, b + j, ld_b, m, k, accumulate);
  }
  for (; bytes == 64 && j < n; j += lanes) {
    product_columns<T, 64, 6, 1>(c + j, ld_c, a, step_m, step_k, b + j, ld_b, m, k, accumulate);
  }
  for (; bytes == 32 && j < n; j += lanes) {
    product_columns<T, 32, 6, 2>(c + j, ld_c, a, step_m, step_k, b + j, ld_b, m, k, accumulate);
  }
  for (; j < n; j += lanes) {
    product_columns<T, 16, 2, 4>(c + j, ld_c, a, step_m, step_k, b + j, ld_b, m, k, accumulate);
  }
}

template <class T>
TALLY_CLONES void add_keys_in_lanes(T* sum, const T* x, std::int64_t keys, std::int64_t lanes) {
  for (std::int64_t j = 0; j < keys; ++j) {
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) sum[i] += x[j * tile_rows + i];
  }
}

}  // namespace

template <class T>
void pack_rows(T* target, std::int64_t ld, const Matrix<T>& x, std::int64_t first, std::int64_t rows,
               std::int64_t width, T factor, std::int64_t all_rows) {
  for (std::int64_t i = 0; i < rows; ++i) {
    T* const row = target + i * ld;
    const T* const source = &x.at(first + i, 0);
    if (x.column_step == 1) {
      for (std::int64_t c = 0; c < width; ++c) row[c] = factor * source[c];
    } else {
      for (std::int64_t c = 0; c < width; ++c) row[c] = factor * source[c * x.column_step];
    }
    std::fill(row + width, row + ld, T{0});
  }
  std::fill(target + rows * ld, target + all_rows * ld, T{0});
}

template <class T>
void transpose_to_lanes(T* target, const T* source, std::int64_t ld, std::int64_t width) {
  constexpr std::int64_t block = 16;  // one cache line of the target for each column
  for (std::int64_t first = 0; first < tile_rows; first += block) {
    for (std::int64_t c = 0; c < width; ++c) {
      for (std::int64_t i = first; i < first + block; ++i) target[c * tile_rows + i] = source[i * ld + c];
    }
  }
}

template <class T>
void transpose_to_rows(T* target, std::int64_t ld, const T* source, std::int64_t width) {
  constexpr std::int64_t block = 16;
  for (std::int64_t first = 0; first < width; first += block) {
    const std::int64_t end = std::min(first + block, width);
    for (std::int64_t i = 0; i < tile_rows; ++i) {
      for (std::int64_t c = first; c < end; ++c) target[i * ld + c] = source[c * tile_rows + i];
    }
  }
}

template <class T>
void unpack_lanes(const Matrix<T>& x, std::int64_t first, std::int64_t rows, std::int64_t width, const T* source,
                  T factor) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t c = 0; c < width; ++c) x.at(first + i, c) = factor * source[c * tile_rows + i];
  }
}

template <class T>
void lane_product(T* c, std::int64_t ld_c, const T* a, std::int64_t step_m, std::int64_t step_k, const T* b,
                  std::int64_t ld_b, std::int64_t m, std::int64_t n, std::int64_t k, bool accumulate) {
  product_in_lanes(c, ld_c, a, step_m, step_k, b, ld_b, m, n, k, accumulate, register_bytes());
}

template <class T>
void add_keys(T* sum, const T* x, std::int64_t keys, std::int64_t lanes) {
  add_keys_in_lanes(sum, x, keys, lanes);
}

#define TALLY_INSTANTIATE(T)                                                                                 \
  template void pack_rows(T*, std::int64_t, const Matrix<T>&, std::int64_t, std::int64_t, std::int64_t, T,   \
                          std::int64_t);                                                                     \
  template void transpose_to_lanes(T*, const T*, std::int64_t, std::int64_t);                                \
  template void transpose_to_rows(T*, std::int64_t, const T*, std::int64_t);                                 \
  template void unpack_lanes(const Matrix<T>&, std::int64_t, std::int64_t, std::int64_t, const T*, T);       \
  template void lane_product(T*, std::int64_t, const T*, std::int64_t, std::int64_t, const T*, std::int64_t, \
                             std::int64_t, std::int64_t, std::int64_t, bool);                                \
  template void add_keys(T*, const T*, std::int64_t, std::int64_t);
TALLY_INSTANTIATE(float)
TALLY_INSTANTIATE(double)
#undef TALLY_INSTANTIATE

}  // namespace tally::cpu
