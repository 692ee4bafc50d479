// The blocks of an arena: apart from each other, within a segment, and merged when they are free.
#include "cuda/runtime/arena.hpp"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <vector>

#include "core/math/random.hpp"

namespace tally::cuda_host {
namespace {

constexpr std::size_t unit = Arena::alignment;

TEST(ArenaBlocks, TakeTheSmallestFreeBlockThatFits) {
  std::vector<std::byte> memory(16 * unit);
  Arena arena;
  EXPECT_EQ(arena.take(1), nullptr);
  arena.add(memory.data(), memory.size());
  std::vector<void*> blocks;
  for (const std::size_t units : {5U, 1U, 2U, 1U, 3U, 1U}) blocks.push_back(arena.take(units * unit));
  for (const std::size_t n : {0U, 2U, 4U}) EXPECT_TRUE(arena.give_back(blocks[n]));
  EXPECT_EQ(arena.take(2 * unit - 1), blocks[2]);
  EXPECT_EQ(arena.take(2 * unit + 1), blocks[4]);
  EXPECT_EQ(arena.take(3 * unit + 1), blocks[0]);
  EXPECT_EQ(arena.used_bytes(), 12 * unit);
  EXPECT_EQ(arena.take(4 * unit), nullptr);
  EXPECT_FALSE(arena.give_back(memory.data() + unit));
}

// Both segments are in one piece of memory, but they are no neighbours.
TEST(ArenaBlocks, AreApartAndLeaveWholeSegments) {
  constexpr std::size_t first = 40 * unit, second = 20 * unit;
  std::vector<std::byte> memory(first + second);
  Rng rng({1, stream_of("arena"), 0});
  Arena arena;
  arena.add(memory.data(), first);
  arena.add(memory.data() + first, second);
  std::map<std::byte*, std::size_t> taken;
  for (int n = 0; n < 2000; ++n) {
    if (const std::size_t bytes = (1 + rng.below(12)) * unit; rng.chance(0.6)) {
      auto* const block = static_cast<std::byte*>(arena.take(bytes));
      if (block == nullptr) continue;
      const std::size_t begin = static_cast<std::size_t>(block - memory.data()), end = begin + bytes;
      ASSERT_TRUE(end <= first || (begin >= first && end <= first + second));
      const auto next = taken.lower_bound(block);
      ASSERT_TRUE(next == taken.end() || block + bytes <= next->first);
      ASSERT_TRUE(next == taken.begin() || std::prev(next)->first + std::prev(next)->second <= block);
      taken.emplace(block, bytes);
    } else if (!taken.empty()) {
      const auto some = std::next(taken.begin(), rng.below(static_cast<std::uint32_t>(taken.size())));
      ASSERT_TRUE(arena.give_back(some->first));
      taken.erase(some);
    }
  }
  for (const auto& [block, bytes] : taken) arena.give_back(block);
  EXPECT_EQ(arena.used_bytes(), 0U);
  EXPECT_EQ(arena.take(first + 1), nullptr);
  EXPECT_EQ(arena.take(first), memory.data());
  EXPECT_EQ(arena.take(second), memory.data() + first);
}

}  // namespace
}  // namespace tally::cuda_host
