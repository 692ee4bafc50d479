// A random permutation of 0 .. count - 1 that is never stored: each element is computed on demand.
#pragma once

#include <cstdint>

#include "core/math/random.hpp"

namespace tally {

// A Feistel network of Philox blocks permutes the numbers of an even number of bits, the fewest that hold `count`
// numbers. A result outside 0 .. count - 1 is permuted again until it is inside (cycle walking: Black, Rogaway, CT-RSA
// 2002). This takes fewer than four rounds on average.
class RandomPermutation {
 public:
  // count: 1 to 2^62.
  RandomPermutation(std::int64_t count, RandomStream stream) : count_(count), stream_(stream) {
    while (half_bits_ < 31 && std::int64_t{1} << (2 * half_bits_) < count) ++half_bits_;
  }

  // Element `index` of the order.
  std::int64_t operator()(std::int64_t index) const {
    do index = network(index);
    while (index >= count_);
    return index;
  }

 private:
  static constexpr std::uint64_t rounds = 6;

  std::int64_t network(std::int64_t index) const {
    const auto bits = static_cast<std::uint64_t>(index), mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = bits >> half_bits_, right = bits & mask;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const std::uint64_t mixed = left ^ (stream_.block(round << 32 | right)[0] & mask);
      left = right;
      right = mixed;
    }
    return static_cast<std::int64_t>(left << half_bits_ | right);
  }

  std::int64_t count_;
  int half_bits_ = 1;
  RandomStream stream_;
};

}  // namespace tally
