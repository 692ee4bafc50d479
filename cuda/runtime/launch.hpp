// The only way to start a kernel, and to declare shared memory:
//
//   __global__ void add_one(float* y, std::int64_t n) { ... }
//   launch(add_one, blocks_for(n, 256), 256, 0, context().stream, y, n);
//
//   SHARED(float, tile, 32 * 33);          // float tile[32 * 33], one a block
//   SHARED_DYNAMIC(float, rows);           // float* to the shared_bytes of the launch
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda/runtime/check.hpp"
#include "cuda/runtime/context.hpp"
#include "cuda/runtime/runtime.hpp"

// TALLY_UNROLL precedes a loop whose index must be a compile-time constant, for example because it indexes an array in
// registers. TALLY_UNROLL_BY(n) precedes a loop in which n iterations should wait for memory together. TALLY_ROLLED
// precedes a loop that must not be unrolled, because copies would cost more registers than they save time.
#if defined(__CUDACC__)
#define TALLY_UNROLL _Pragma("unroll")
#define TALLY_PRAGMA(text) _Pragma(#text)
#define TALLY_UNROLL_BY(n) TALLY_PRAGMA(unroll n)
#define TALLY_ROLLED _Pragma("unroll 1")
#else
#define TALLY_UNROLL
#define TALLY_UNROLL_BY(n)
#define TALLY_ROLLED
#endif

#if defined(__CUDACC__)
#define SHARED(T, name, n) __shared__ T name[n]
#define SHARED_DYNAMIC(T, name)                                        \
  extern __shared__ __align__(16) unsigned char tally_dynamic_bytes[]; \
  T* const name = reinterpret_cast<T*>(tally_dynamic_bytes)
#endif

namespace tally::TALLY_CUDA_NAMESPACE {

#if defined(__CUDACC__)
// As in cuda/emulator/language.hpp, which checks the alignment.
template <class Vector, class T>
__device__ Vector* vector_at(T* first) {
  return reinterpret_cast<Vector*>(first);
}
#endif

// The size of a grid, and the source line that created it: messages name a launch by this line.
struct Grid {
  dim3 size;
  const char* file;
  int line;
  Grid(dim3 size_, const char* file_ = __builtin_FILE(), int line_ = __builtin_LINE())
      : size(size_), file(file_), line(line_) {}
  Grid(unsigned size_, const char* file_ = __builtin_FILE(), int line_ = __builtin_LINE())
      : size(size_), file(file_), line(line_) {}
};

// Blocks that cover n > 0 elements with `each` per block, for kernels that step by the whole grid: more than `most`
// blocks would only take turns on the GPU's processors.
inline unsigned blocks_for(std::int64_t n, std::int64_t each, std::int64_t most = 4096) {
  return static_cast<unsigned>(std::min((n + each - 1) / each, most));
}

// Runs kernel(arguments...) on every thread of the grid, in stream order. At least one block; at most 1024 threads per
// block and shared_memory_limit() of shared memory, at most 48 KiB of it in arrays. Throws Error if CUDA refuses the
// launch.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            Arguments&&... arguments) {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "parameters go to the device as plain bytes");
  static_assert((sizeof(Parameters) + ... + 0) <= 4096, "CUDA before version 12.1 takes 4 KiB of parameters");
#if defined(__CUDACC__)
  constexpr std::size_t without_asking = std::size_t{48} << 10;
  if (shared_bytes > without_asking) {
    // Reserves the limit, not only this launch's size: other launches may be waiting in a graph or come from other
    // threads.
    cudaFuncAttributes own{};
    CUDA_CHECK(cudaFuncGetAttributes(&own, kernel));
    const std::size_t most = shared_memory_limit() - own.sharedSizeBytes;
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most)));
  }
  kernel<<<grid.size, block, shared_bytes, stream>>>(static_cast<Parameters>(arguments)...);
#else
  using Parameter = std::tuple<Parameters...>;
  struct Call {
    void (*kernel)(Parameters...);
    Parameter parameters;
    static void run(const void* call) {
      const Call& self = *static_cast<const Call*>(call);
      std::apply(self.kernel, self.parameters);
    }
  };
  if (detail::check_configuration(grid.size, block, shared_bytes) == cudaSuccess) {
    const Call call{kernel, Parameter(static_cast<Parameters>(arguments)...)};
    detail::enqueue(stream, [=, size = grid.size, line = SourceLine{grid.file, grid.line}] {
      detail::run_grid(size, block, shared_bytes, line, &Call::run, &call);
    });
  }
#endif
  check_launch(stream, grid.file, grid.line);
}

// A new tensor gets this memory, which other tensors may have had. On the CPU it is filled with NaN in stream order, to
// find kernels that read unwritten memory. A GPU does nothing.
inline void mark_unwritten([[maybe_unused]] void* block, [[maybe_unused]] std::size_t bytes,
                           [[maybe_unused]] cudaStream_t stream) {
#if !defined(__CUDACC__)
  detail::poison(block, bytes, stream);
#endif
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
