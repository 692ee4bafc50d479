// The floating-point mode that kernels compute in: numbers below the normal ones are zero (FTZ and DAZ of x86-64, FZ of
// AArch64), in f32 and f64 alike, and sums are rounded to nearest. Processors may take a hundred times as long for an
// operation on a denormal number, and weights of attention under trained gates end among them. The results depend on
// the mode, which belongs to a thread: so every thread that computes sets it, and has its own back afterwards.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tally::cpu {

// What decides how a thread rounds, what it traps and whether it knows denormal numbers; 0 where nothing is known of
// the processor, whose mode is then left as it is.
inline std::uint64_t floating_mode() {
#if defined(__x86_64__)
  return _mm_getcsr();
#elif defined(__aarch64__)
  std::uint64_t mode = 0;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
#else
  return 0;
#endif
}

inline void set_floating_mode([[maybe_unused]] std::uint64_t mode) {
#if defined(__x86_64__)
  asm volatile("" ::: "memory");  // what is stored before was computed in the mode before
  _mm_setcsr(static_cast<unsigned>(mode));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" : : "r"(mode) : "memory");
#endif
}

// Traps of nothing, rounds to nearest, flushes to zero what is below the normal numbers, operands and results.
#if defined(__x86_64__)
inline constexpr std::uint64_t kernel_mode = 0x1f80 | 0x8000 | 0x0040;  // all masks, FTZ, DAZ
#else
inline constexpr std::uint64_t kernel_mode = std::uint64_t{1} << 24;  // FZ
#endif

// This thread computes in kernel_mode for as long as this lives; what it had before, flags included, comes back.
class InKernelMode {
 public:
  InKernelMode() { set_floating_mode(kernel_mode); }
  ~InKernelMode() { set_floating_mode(before_); }
  InKernelMode(const InKernelMode&) = delete;
  InKernelMode& operator=(const InKernelMode&) = delete;

 private:
  std::uint64_t before_ = floating_mode();
};

}  // namespace tally::cpu
