// Distributing work over threads, and compiling one function for several instruction sets.
//
// Results must be the same bits for any number of threads. So the tiles of a kernel depend only on the shape, every
// tile is computed by one thread, and no two tiles add to the same number.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cpu/floating_mode.hpp"

namespace tally {

// Number of threads the kernels use; OMP_NUM_THREADS or the number of cores until set.
int thread_count();
// For all threads of the program, from the next kernel on. Throws Error when n < 1.
void set_thread_count(int n);

namespace detail {
// The core this thread runs on; -1 if the system does not report it.
int current_core();
// Moves this thread elsewhere if it shares the core of the thread that started the parallel region.
void leave_core(int core);
}  // namespace detail

// Calls f(tile) once for every tile in 0..tiles-1, in any order and on any thread, in the floating-point mode of
// kernels (core/cpu/floating_mode.hpp). f must not throw: an exception cannot leave a parallel region.
template <class F>
void parallel_for(std::int64_t tiles, F&& f) {
  const int threads = thread_count();
  if (tiles <= 1 || threads == 1) {
    const cpu::InKernelMode mode;
    for (std::int64_t tile = 0; tile < tiles; ++tile) f(tile);
    return;
  }
  const int caller_core = detail::current_core();
  // The team always has the same size, even for fewer tiles: libgomp ends the threads that a smaller team does not use,
  // and has to create them again for the next kernel.
#pragma omp parallel num_threads(threads)
  {
    detail::leave_core(caller_core);
    const cpu::InKernelMode mode;
#pragma omp for schedule(dynamic, 1) nowait
    for (std::int64_t tile = 0; tile < tiles; ++tile) f(tile);
  }
}

// Calls f(begin, end) for the blocks [0, block), [block, 2 block), ... of 0..n-1. The size of a block must not depend
// on the number of threads.
template <class F>
void parallel_for_blocks(std::int64_t n, std::int64_t block, F&& f) {
  parallel_for((n + block - 1) / block, [&](std::int64_t tile) { f(tile * block, std::min(n, (tile + 1) * block)); });
}

}  // namespace tally

// TALLY_CLONES before a function compiles it for AVX-512, for AVX2 and for the baseline; the best for the processor is
// chosen when the program starts. It belongs on the function that computes one tile, called from inside parallel_for:
// code directly inside a parallel region is moved into another function and not cloned. Functions that it calls must be
// inlined. clang 14 does not support templates here, and sanitizers start only after the choice is made; there it is
// empty.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TALLY_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TALLY_SANITIZED 1
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(TALLY_SANITIZED)
#define TALLY_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TALLY_CLONES
#endif
