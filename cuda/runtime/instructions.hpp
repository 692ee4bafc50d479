// The instructions of the tensor cores, each a small function of one warp, and matmuls of tiles in shared memory built
// from them. On the host cuda/emulator/tensor_cores.cpp executes them with the layout of each lane
// (tests/cuda/instructions_test.cpp). multiply_tile does not use them there, but rounds the same operands.
//
// A warp's tile of results has 16 rows and 4 C columns, in registers: thread l holds rows l/4 + 8 r and columns 8 (c/2)
// + 2 (l%4) + c%2, r < 2, c < C. This is how mma.sync lays out its results (PTX ISA, "Matrix fragments for mma.m16n8k8"
// and "mma.m16n8k16"). Matmuls of f32 and f64, which use no tensor cores, use the same layout.
#pragma once

#include <bit>
#include <cmath>

#include "core/precision.hpp"
#include "cuda/runtime/launch.hpp"

// Whether this compiler pass has the instructions: GPUs from compute capability 8.0 on have them, the host has the
// scalar versions. Older GPUs multiply without.
#if !defined(__CUDACC__) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800)
#define TALLY_TENSOR_CORES 1
#endif

namespace tally::TALLY_CUDA_NAMESPACE {

inline constexpr int warp_rows = 16;  // of a warp's tile
inline constexpr int row_lanes = 4;   // threads that share a row

__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x) % 32; }
// The position in the tile of the thread's element (r, c).
__device__ inline int tile_row(int r) { return lane_of_warp() / row_lanes + 8 * r; }
__device__ inline int tile_column(int c) { return 8 * (c / 2) + 2 * (lane_of_warp() % row_lanes) + c % 2; }

// An operand of a matmul in shared memory, ld elements from line to line. k: the summation index.
template <class T, bool lines_along_k>
struct Factor {
  const T* data;
  int ld;
  static constexpr bool along_k = lines_along_k;
  __device__ T at(int i, int k) const { return along_k ? data[i * ld + k] : data[k * ld + i]; }
};
template <class T>
using ByRow = Factor<T, true>;  // element (i, k) at [i][k]
template <class T>
using ByColumn = Factor<T, false>;  // at [k][i]

namespace detail {

// n adjacent elements, aligned to 4 n bytes if they are float.
template <std::size_t n, class T>
__device__ void read(T (&values)[n], const T* from) {
  if constexpr (std::is_same_v<T, float> && n == 4) {
    const float4 four = *vector_at<const float4>(from);
    values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
  } else if constexpr (std::is_same_v<T, float> && n == 2) {
    const float2 two = *vector_at<const float2>(from);
    values[0] = two.x, values[1] = two.y;
  } else {
    TALLY_UNROLL
    for (std::size_t i = 0; i < n; ++i) values[i] = from[i];
  }
}

template <std::size_t n, class T>
__device__ void write(T* to, const T (&values)[n]) {
  if constexpr (std::is_same_v<T, float> && n == 4) {
    *vector_at<float4>(to) = make_float4(values[0], values[1], values[2], values[3]);
  } else {
    TALLY_UNROLL
    for (std::size_t i = 0; i < n; ++i) to[i] = values[i];
  }
}

// Without tensor cores: four values of k at a time, whose elements are read at once.
template <MatmulPrecision precision, class T, std::size_t C, class A, class B>
__device__ void multiply_scalars(T (&result)[2][C], const A& a, const B& b, int depth) {
  constexpr int step = 4;
  TALLY_ROLLED
  for (int k = 0; k < depth; k += step) {
    T x[2][step];
    TALLY_UNROLL
    for (int r = 0; r < 2; ++r) {
      if constexpr (A::along_k) {
        read(x[r], a.data + tile_row(r) * a.ld + k);
      } else {
        TALLY_UNROLL
        for (int n = 0; n < step; ++n) x[r][n] = a.at(tile_row(r), k + n);
      }
      TALLY_UNROLL
      for (int n = 0; n < step; ++n) x[r][n] = rounded<precision>(x[r][n]);
    }
    TALLY_UNROLL
    for (int c = 0; c < static_cast<int>(C); c += 2) {
      T y[2][step];
      if constexpr (B::along_k) {
        TALLY_UNROLL
        for (int i = 0; i < 2; ++i) read(y[i], b.data + tile_column(c + i) * b.ld + k);
      } else {
        TALLY_UNROLL
        for (int n = 0; n < step; ++n) {
          T pair[2];
          read(pair, b.data + (k + n) * b.ld + tile_column(c));
          y[0][n] = pair[0], y[1][n] = pair[1];
        }
      }
      TALLY_UNROLL
      for (int r = 0; r < 2; ++r) {
        TALLY_UNROLL
        for (int i = 0; i < 2; ++i) {
          TALLY_UNROLL
          for (int n = 0; n < step; ++n) result[r][c + i] += x[r][n] * rounded<precision>(y[i][n]);
        }
      }
    }
  }
}

// The bits of one operand in TF32, and of two in bf16, the lower in the lower half.
__device__ inline std::uint32_t as_tf32(float x) {
#if defined(__CUDACC__)
  std::uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
#else
  return std::bit_cast<std::uint32_t>(rounded<MatmulPrecision::tf32>(x));
#endif
}
__device__ inline std::uint32_t as_bf16_pair(float low, float high) {
#if defined(__CUDACC__)
  std::uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
#else
  constexpr MatmulPrecision bf16 = MatmulPrecision::bf16;
  return std::bit_cast<std::uint32_t>(rounded<bf16>(low)) >> 16 |
         (std::bit_cast<std::uint32_t>(rounded<bf16>(high)) & 0xffff0000U);
#endif
}

// c += a b, [16, 8] x [8, 8] in TF32 and [16, 16] x [16, 8] in bf16.
__device__ inline void mma_tf32(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
#if defined(__CUDACC__)
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  mma_sync(c, a, b, 1);
#endif
}
__device__ inline void mma_bf16(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
#if defined(__CUDACC__)
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  mma_sync(c, a, b, 2);
#endif
}

// ldmatrix: four 8 x 8 matrices of bf16 from shared memory, each into one register of every lane. Lane l gives the
// address of row l % 8 of matrix l / 8, 16 bytes. It gets elements 2 (l % 4) and the next of row l / 4; transposed: of
// column l / 4.
template <bool transposed>
__device__ inline void load_matrices(std::uint32_t (&x)[4], const std::uint16_t* row) {
#if defined(__CUDACC__)
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address)
                 : "memory");
  }
#else
  load_matrices_sync(x, row, transposed);
#endif
}

// cp.async: starts to copy 16 bytes to shared memory, zeros if `given` is false. The calling thread can rely on them
// after wait_for_copies, other threads after a barrier that follows.
__device__ inline void start_copy(std::uint16_t* to, const std::uint16_t* from, bool given) {
#if defined(__CUDACC__)
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(address), "l"(from), "r"(given ? 16 : 0)
               : "memory");
#else
  start_async_copy(to, from, given);
#endif
}
__device__ inline void wait_for_copies() {
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_all;" ::: "memory");
#else
  finish_async_copies();
#endif
}

// Returns x. The compiler recomputes values that depend on it instead of keeping them in registers.
__device__ inline int recomputed(int x) {
#if defined(__CUDACC__)
  asm volatile("" : "+r"(x));
#endif
  return x;
}

// 2^x with a relative error of 2^-22; 0 instead of subnormal results.
__host__ __device__ inline float exp2_approximate(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return x < -126.0f ? 0.0f : std::exp2(x);
#endif
}

// 1 / x with a relative error of 2^-23.
__host__ __device__ inline float reciprocal_approximate(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1 / x;
#endif
}

// floor(x) and the element of an array with this index, for 0 <= x < 2^22. Adding 2^23 leaves whole numbers in the
// lowest bits, which need no conversion.
struct Element {
  float floor;
  const float* at;
};
__device__ inline Element element_at(const float* array, float x) {
#if defined(__CUDA_ARCH__)
  const float shifted = __fadd_rd(x, 0x1p23f);
  constexpr std::uintptr_t bits_of_shift = 0x4b000000;
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(array) - sizeof(float) * bits_of_shift;
  return {shifted - 0x1p23f,
          reinterpret_cast<const float*>(begin + sizeof(float) * std::uintptr_t{__float_as_uint(shifted)})};
#else
  const auto floor = static_cast<std::uint32_t>(x);
  return {static_cast<float>(floor), array + floor};
#endif
}
// *x in global memory, which the kernel does not write.
__device__ inline float constant_at(const float* x) {
#if defined(__CUDA_ARCH__)
  return __ldg(x);
#else
  return *x;
#endif
}

// The content of a fragment's register: element (i, k) in TF32, (i, k) and (i, k+1) in bf16.
template <MatmulPrecision precision, class X>
__device__ std::uint32_t fragment(const X& x, int i, int k) {
  if constexpr (precision == MatmulPrecision::tf32) {
    return as_tf32(x.at(i, k));
  } else if constexpr (X::along_k) {
    float pair[2];
    read(pair, x.data + i * x.ld + k);
    return as_bf16_pair(pair[0], pair[1]);
  } else {
    return as_bf16_pair(x.at(i, k), x.at(i, k + 1));
  }
}

template <MatmulPrecision precision, std::size_t C, class A, class B>
__device__ void multiply_on_tensor_cores(float (&result)[2][C], const A& a, const B& b, int depth) {
  constexpr bool bf16 = precision == MatmulPrecision::bf16;
  constexpr int step = bf16 ? 16 : 8, beyond = bf16 ? 8 : 4;
  const int line = lane_of_warp() / row_lanes;
  const int own = lane_of_warp() % row_lanes * (bf16 ? 2 : 1);
  for (int k = 0; k < depth; k += step) {
    const std::uint32_t x[4] = {fragment<precision>(a, line, k + own), fragment<precision>(a, line + 8, k + own),
                                fragment<precision>(a, line, k + own + beyond),
                                fragment<precision>(a, line + 8, k + own + beyond)};
    TALLY_UNROLL
    for (int c = 0; c < static_cast<int>(C); c += 2) {
      const std::uint32_t y[2] = {fragment<precision>(b, 4 * c + line, k + own),
                                  fragment<precision>(b, 4 * c + line, k + own + beyond)};
      float block[4] = {result[0][c], result[0][c + 1], result[1][c], result[1][c + 1]};
      if constexpr (bf16) {
        mma_bf16(block, x, y);
      } else {
        mma_tf32(block, x, y);
      }
      result[0][c] = block[0], result[0][c + 1] = block[1], result[1][c] = block[2], result[1][c + 1] = block[3];
    }
  }
}

}  // namespace detail

inline constexpr int product_step = 16;  // depths are multiples of it

// result[i][j] += sum over k < depth of a(i, k) b(j, k), i the rows and j the columns of the warp's tile; operands are
// rounded to `precision`, sums are T. All threads of a warp call it together, after their writes to a and b are visible
// (__syncwarp). Lines that are read along k are aligned to 16 bytes.
template <MatmulPrecision precision, class T, std::size_t C, class A, class B>
__device__ void multiply_tile(T (&result)[2][C], const A& a, const B& b, int depth) {
#if defined(__CUDACC__) && defined(TALLY_TENSOR_CORES)
  if constexpr (precision != MatmulPrecision::f32) {
    detail::multiply_on_tensor_cores<precision>(result, a, b, depth);
    return;
  } else
#endif
  {
    detail::multiply_scalars<precision>(result, a, b, depth);
  }
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
