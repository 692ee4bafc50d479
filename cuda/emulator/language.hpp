// The part of the CUDA language that tally's kernels use, for a C++ compiler: keywords, built-in variables, shared
// memory, barriers, warp operations, atomic operations on integers. Kernels do not use the rest: atomic operations on
// floating-point numbers (their order would decide the bits), textures, cooperative groups, reliance on lock-step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__

namespace tally::cuda_host {

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3() = default;
  constexpr dim3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};

struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {x, y}; }

// The indices of the running thread; the fibers of one block share these variables and never leave their OS thread.
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
inline constexpr int warpSize = 32;

// A line of the source, for messages.
struct SourceLine {
  const char* file = nullptr;
  int line = 0;
};

#define TALLY_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

// ---------------------------------------------------------------------------------------------------------------------
// Shared memory. Each array is a heap block of its exact size, one per block of threads, filled with NaN.

namespace detail {
// `site` identifies the declaration: every thread of the block gets the same array for it.
void* shared_array(const void* site, std::size_t bytes, std::size_t alignment, SourceLine line);
void* dynamic_shared_memory();
// Returns whether the predicate of every thread is true.
bool barrier(SourceLine line, bool predicate = true);
}  // namespace detail

#define SHARED(T, name, n)                                                                               \
  T(&name)                                                                                               \
  [n] = *static_cast<T(*)[n]>([]() -> void* {                                                            \
    static char site;                                                                                    \
    return ::tally::cuda_host::detail::shared_array(&site, sizeof(T[n]), alignof(T),                     \
                                                    ::tally::cuda_host::SourceLine{__FILE__, __LINE__}); \
  }())
#define SHARED_DYNAMIC(T, name) T* const name = static_cast<T*>(::tally::cuda_host::detail::dynamic_shared_memory())

// ---------------------------------------------------------------------------------------------------------------------
// Barriers and warp operations. Each checks that the participating threads agree, and otherwise stops the launch with
// block, thread and line.

inline void __syncthreads(TALLY_HERE) { detail::barrier({file, line}); }
inline bool __syncthreads_and(bool predicate, TALLY_HERE) { return detail::barrier({file, line}, predicate); }

namespace detail {

enum class WarpOperation : std::uint8_t { sync, shuffle, ballot, collective };

// The input and the result of one lane in a warp operation.
struct WarpRequest {
  WarpOperation operation;
  std::uint32_t mask;  // the participating lanes
  const char* name;
  SourceLine line;
  std::uint64_t value = 0;  // shuffle: the bits it offers; ballot: 0 or 1; collective: the address of its registers
  int source = 0;           // shuffle: the lane to read from
  void (*work)(void* const* lanes) = nullptr;  // collective: called once, with the registers of all lanes
};
// Returns when every lane of the mask has arrived: shuffle: the source's bits, ballot: a bit for each lane that gave 1.
std::uint64_t warp_meet(const WarpRequest& request);
int lane_index();

template <class T>
T shuffle(std::uint32_t mask, T value, int source, const char* name, SourceLine line) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  WarpRequest request{WarpOperation::shuffle, mask, name, line, 0, source};
  std::memcpy(&request.value, &value, sizeof value);
  const std::uint64_t bits = warp_meet(request);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace detail

inline void __syncwarp(std::uint32_t mask = 0xffffffffu, TALLY_HERE) {
  detail::warp_meet({detail::WarpOperation::sync, mask, "__syncwarp", {file, line}});
}

inline std::uint32_t __ballot_sync(std::uint32_t mask, bool predicate, TALLY_HERE) {
  return static_cast<std::uint32_t>(detail::warp_meet(
      {detail::WarpOperation::ballot, mask, "__ballot_sync", {file, line}, predicate ? std::uint64_t{1} : 0}));
}
inline bool __any_sync(std::uint32_t mask, bool predicate, TALLY_HERE) {
  return detail::warp_meet(
             {detail::WarpOperation::ballot, mask, "__any_sync", {file, line}, predicate ? std::uint64_t{1} : 0}) != 0;
}
inline bool __all_sync(std::uint32_t mask, bool predicate, TALLY_HERE) {
  return detail::warp_meet(
             {detail::WarpOperation::ballot, mask, "__all_sync", {file, line}, predicate ? std::uint64_t{1} : 0}) ==
         mask;
}

// The value of lane `source` in this thread's segment of `width` lanes.
template <class T>
T __shfl_sync(std::uint32_t mask, T value, int source, int width = warpSize, TALLY_HERE) {
  const int first = detail::lane_index() & ~(width - 1);
  return detail::shuffle(mask, value, first + (source & (width - 1)), "__shfl_sync", {file, line});
}
// The value of the lane `delta` higher or lower; the thread's own value beyond the end of the segment.
template <class T>
T __shfl_down_sync(std::uint32_t mask, T value, unsigned delta, int width = warpSize, TALLY_HERE) {
  const int lane = detail::lane_index(), source = lane + static_cast<int>(delta);
  const bool inside = source / width == lane / width;
  return detail::shuffle(mask, value, inside ? source : lane, "__shfl_down_sync", {file, line});
}
template <class T>
T __shfl_up_sync(std::uint32_t mask, T value, unsigned delta, int width = warpSize, TALLY_HERE) {
  const int lane = detail::lane_index(), source = lane - static_cast<int>(delta);
  const bool inside = source >= lane / width * width;
  return detail::shuffle(mask, value, inside ? source : lane, "__shfl_up_sync", {file, line});
}
// The value of the lane whose number differs in the bits of `bits`; the thread's own value if that lane is in a later
// segment.
template <class T>
T __shfl_xor_sync(std::uint32_t mask, T value, int bits, int width = warpSize, TALLY_HERE) {
  const int lane = detail::lane_index(), source = lane ^ bits;
  const bool inside = source / width <= lane / width;
  return detail::shuffle(mask, value, inside ? source : lane, "__shfl_xor_sync", {file, line});
}

// ---------------------------------------------------------------------------------------------------------------------
// Atomic operations; each returns the previous value.

template <class T>
T atomicAdd(T* line, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T> && sizeof(T) >= 4, "the order of floating sums would decide their bits");
  return __atomic_fetch_add(line, value, __ATOMIC_RELAXED);
}

template <class T>
T __ldg(const T* line) {
  return *line;
}

// ---------------------------------------------------------------------------------------------------------------------
// Adjacent elements, read or written at once.

namespace detail {
[[noreturn]] void off_boundary(std::size_t bytes, SourceLine line);
}  // namespace detail

// As a float2, float4 or double2, const or not. A GPU faults if the address is not a multiple of the vector's size.
template <class Vector, class T>
Vector* vector_at(T* first, TALLY_HERE) {
  if (reinterpret_cast<std::uintptr_t>(first) % alignof(Vector) != 0)
    detail::off_boundary(sizeof(Vector), {file, line});
  return reinterpret_cast<Vector*>(first);
}

#undef TALLY_HERE

}  // namespace tally::cuda_host
