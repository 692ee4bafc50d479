// The tensor core instructions of a warp and asynchronous copies to shared memory (cuda/runtime/instructions.hpp). A
// warp instruction is executed once, when its last lane arrives, with the registers of all lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cuda/emulator/language.hpp"

namespace tally::cuda_host {

namespace detail {

struct MmaRegisters {
  float c[4];
  std::uint32_t a[4], b[2];
};
struct MatrixRegisters {
  std::uint32_t x[4];  // the lane's row, then its result
};
// Lanes of a whole warp.
void mma_of_lanes(MmaRegisters& own, int packed, SourceLine line);
void exchange_matrices(MatrixRegisters& own, bool transposed, SourceLine line);

struct AsyncCopy {
  void* to;
  const void* from;
  bool given;
  static constexpr std::size_t bytes = 16;
  void run() const { given ? std::memcpy(to, from, bytes) : std::memset(to, 0, bytes); }
};
// Whether the copy is kept for later: with Settings::delay_streams it arrives as late as CUDA allows.
bool delays_copy(const AsyncCopy& copy);
// Takes the running thread's first pending copy; false: it has none.
bool take_copy(AsyncCopy& copy);

}  // namespace detail

#define TALLY_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

// c += a b, with 1 or 2 elements a register of a and b: [16, 8] x [8, 8] in TF32 or [16, 16] x [16, 8] in bf16.
inline void mma_sync(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], int packed, TALLY_HERE) {
  detail::MmaRegisters own{{c[0], c[1], c[2], c[3]}, {a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  detail::mma_of_lanes(own, packed, {file, line});
  std::memcpy(c, own.c, sizeof c);
}

inline void load_matrices_sync(std::uint32_t (&x)[4], const std::uint16_t* row, bool transposed, TALLY_HERE) {
  detail::MatrixRegisters own;
  const float4* const whole = vector_at<const float4>(row, file, line);
  std::memcpy(own.x, whole, sizeof own.x);
  detail::exchange_matrices(own, transposed, {file, line});
  std::memcpy(x, own.x, sizeof x);
}

inline void start_async_copy(void* to, const void* from, bool given, TALLY_HERE) {
  vector_at<float4>(static_cast<std::byte*>(to), file, line);
  if (given) vector_at<const float4>(static_cast<const std::byte*>(from), file, line);
  const detail::AsyncCopy copy{to, from, given};
  if (!detail::delays_copy(copy)) copy.run();
}
inline void finish_async_copies() {
  detail::AsyncCopy copy;
  while (detail::take_copy(copy)) copy.run();
}

#undef TALLY_HERE

}  // namespace tally::cuda_host
