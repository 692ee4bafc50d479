// The floating-point mode of kernels: subnormal numbers are zero (FTZ and DAZ of x86-64, FZ of AArch64), in f32 and f64
// alike, and sums are rounded to nearest. Processors may take a hundred times as long for an operation on a subnormal
// number, and attention weights under trained gates become subnormal. The results depend on the mode, and the mode
// belongs to a thread. So every thread that computes sets it, and restores its own mode afterwards.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tally::cpu {

// The register that controls rounding, traps and subnormal numbers of a thread. 0 on other processors, whose mode is
// not changed.
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
  asm volatile("" ::: "memory");  // earlier stores were computed in the earlier mode
  _mm_setcsr(static_cast<unsigned>(mode));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" : : "r"(mode) : "memory");
#endif
}

// No traps, rounding to nearest, subnormal operands and results flushed to zero.
#if defined(__x86_64__)
inline constexpr std::uint64_t kernel_mode = 0x1f80 | 0x8000 | 0x0040;  // all masks, FTZ, DAZ
#else
inline constexpr std::uint64_t kernel_mode = std::uint64_t{1} << 24;  // FZ
#endif

// Sets kernel_mode for this thread during its lifetime, then restores the previous mode, flags included.
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
