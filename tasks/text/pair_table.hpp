// Merges by their pair of ids: a hash table with open addressing, of which most look-ups find nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "tasks/text/byte_hash.hpp"

namespace tally {

class PairTable {
 public:
  struct Entry {
    std::uint64_t pair;
    std::int32_t rank, result;
  };
  static constexpr std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }

  // Room for so many pairs.
  explicit PairTable(std::size_t pairs = 0) {
    std::size_t size = 16;
    while (size < 2 * pairs) size *= 2;
    entries_.assign(size, {none, 0, 0});
  }

  // Null when the pair is not there.
  const Entry* find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t pair = pair_of(left, right);
    for (std::size_t slot = slot_of(pair);; slot = (slot + 1) & (entries_.size() - 1)) {
      if (entries_[slot].pair == pair) return &entries_[slot];
      if (entries_[slot].pair == none) return nullptr;
    }
  }
  // False when the pair is there already.
  bool add(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t result) {
    const std::uint64_t pair = pair_of(left, right);
    std::size_t slot = slot_of(pair);
    while (entries_[slot].pair != none) {
      if (entries_[slot].pair == pair) return false;
      slot = (slot + 1) & (entries_.size() - 1);
    }
    entries_[slot] = {pair, rank, result};
    return true;
  }

 private:
  static constexpr std::uint64_t none = ~std::uint64_t{0};  // ids are not negative
  std::size_t slot_of(std::uint64_t pair) const {
    return static_cast<std::size_t>(fold_product(pair, 0x9e3779b97f4a7c15U)) & (entries_.size() - 1);
  }

  std::vector<Entry> entries_;  // a power of two, at most half full
};

}  // namespace tally
