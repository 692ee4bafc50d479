// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011). A value is a pure function of
// (seed, stream, step, element): same bits on any device and thread count and after a resume, with no state to save.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#if defined(__CUDACC__)
#define TALLY_HOST_DEVICE __host__ __device__
#define TALLY_BY_NVCC 1
#else
#define TALLY_HOST_DEVICE
#endif

namespace tally {

using PhiloxBlock = std::array<std::uint32_t, 4>;

// Ten rounds of Philox4x32 on `counter` under `key` (the published function, see tests for its known answers).
TALLY_HOST_DEVICE inline PhiloxBlock philox4x32_10(PhiloxBlock counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(product0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// 32-bit FNV-1a of a name: the stream of a parameter's initial values is the hash of its path.
constexpr std::uint32_t stream_of(std::string_view name) {
  std::uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<std::uint8_t>(c)) * 16777619u;
  return hash;
}

// One stream of random numbers at one step; elements are addressed by index. Trivially copyable: kernels take it.
struct RandomStream {
  std::uint64_t seed = 0;
  std::uint32_t stream = 0;
  std::uint32_t step = 0;
  // If set, the step is read from this address in the memory of the drawing device. So work that is captured once and
  // run at every step (core/device/graph.hpp) draws other numbers each time. Kernels call now() first.
  const std::uint32_t* step_at = nullptr;
  // The element of the stream that a kernel counts as element 0, if the tensor is a part of a larger one.
  std::uint64_t first = 0;

  TALLY_HOST_DEVICE RandomStream now() const {
    return {seed, stream, step_at != nullptr ? *step_at : step, nullptr, first};
  }

  // Elements 4*block .. 4*block+3.
  TALLY_HOST_DEVICE PhiloxBlock block(std::uint64_t index) const {
    return philox4x32_10({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), step, stream},
                         static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  }
  TALLY_HOST_DEVICE std::uint32_t bits(std::uint64_t element) const {
    return block(element / 4)[static_cast<std::size_t>(element % 4)];
  }
};

// [0, 1) with 24 bits: exact in f32.
TALLY_HOST_DEVICE constexpr float uniform_from_bits(std::uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

// [low, high), rounded once: no device and no instruction set has other bits.
TALLY_HOST_DEVICE inline double uniform_from_bits(std::uint32_t bits, double low, double high) {
  return std::fma(high - low, static_cast<double>(uniform_from_bits(bits)), low);
}

// Sequential draws from one stream, for code that takes one number after another (the tasks' generators).
class Rng {
 public:
  explicit Rng(RandomStream stream) : stream_(stream) {}
  std::uint32_t bits() {
    const auto lane = static_cast<std::size_t>(next_ % 4);
    if (lane == 0) block_ = stream_.block(next_ / 4);
    ++next_;
    return block_[lane];
  }
  double uniform() { return uniform_from_bits(bits()); }
  // Uniform in 0 .. n-1 without bias (draws again if 2^32 is not a multiple of n); n > 0.
  std::uint32_t below(std::uint32_t n) {
    const std::uint32_t limit = (0u - n) % n;  // 2^32 mod n
    std::uint32_t value = bits();
    while (value < limit) value = bits();
    return value % n;
  }
  // True with probability p, resolution 2^-24.
  bool chance(double p) { return uniform() < p; }

 private:
  RandomStream stream_;
  std::uint64_t next_ = 0;
  PhiloxBlock block_{};  // holds element next_, unless that begins a new block
};

}  // namespace tally
