// The f32 and f64 microkernel for small matrices that are not packed: tiles of attention
// (core/cpu/attention/tile.hpp) and narrow layers.
#pragma once

#include <cstdint>

namespace tally::cpu {

// Elements of one vector of 64 bytes.
template <class T>
inline constexpr std::int64_t vector_lanes = static_cast<std::int64_t>(64 / sizeof(T));

constexpr std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

// c[m][n] = sum_k a(m, k) b[k][n], plus the former c[m][n] with `add`. a(m, k) = a[m step_m + k step_k]; n is a
// multiple of vector_lanes<T>. Every element is one sum in rising k, whatever the instruction set.
template <class T>
void gemm_microkernel(T* c, std::int64_t ld_c, const T* a, std::int64_t step_m, std::int64_t step_k, const T* b,
                      std::int64_t ld_b, std::int64_t m, std::int64_t n, std::int64_t k, bool add);

// Bytes of the registers for which the code that runs was compiled: 64, 32 or 16.
int register_bytes();

}  // namespace tally::cpu
