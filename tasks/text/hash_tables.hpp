// A hash of texts for tables in memory, and a table of merges. No output depends on the hash.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

namespace tally {

__extension__ using DoubleWord = unsigned __int128;

// XOR-folds a 128-bit product: every bit of the result depends on all bits of both factors.
inline std::uint64_t fold_product(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<DoubleWord>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Random in every process, so that the author of a file cannot choose texts that share a slot in a table.
inline const std::array<std::uint64_t, 2> hash_secrets = [] {
  std::random_device random;
  const auto draw = [&] { return std::uint64_t{random()} << 32 | random(); };
  return std::array<std::uint64_t, 2>{draw(), draw()};
}();

inline std::uint64_t hash_of(std::uint64_t a, std::uint64_t b) {
  return fold_product(a ^ hash_secrets[0], b ^ hash_secrets[1]);
}

// A hash of texts, for std::unordered_map.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    std::uint64_t hash = text.size() * 0x9e3779b97f4a7c15U + 1;
    const auto add = [&](std::size_t bytes) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data(), bytes);
      hash = hash_of(hash, word);
    };
    for (; text.size() > 8; text.remove_prefix(8)) add(8);
    add(text.size());
    return static_cast<std::size_t>(hash);
  }
};

// Merges by their pair of ids: a hash table with open addressing. Most look-ups find no entry.
class PairTable {
 public:
  struct Entry {
    std::uint64_t pair;
    std::int32_t rank, result;
  };
  static constexpr std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }

  // Reserves room for this many pairs.
  explicit PairTable(std::size_t pairs) : entries_(std::bit_ceil(2 * pairs + 2), Entry{none, 0, 0}) {}

  // Null for an unknown pair.
  const Entry* find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t pair = pair_of(left, right);
    for (std::size_t slot = slot_of(pair);; slot = (slot + 1) & (entries_.size() - 1)) {
      if (entries_[slot].pair == pair) return &entries_[slot];
      if (entries_[slot].pair == none) return nullptr;
    }
  }
  // Returns false if the pair already exists.
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
