// A hash of bytes for tables in memory, and a table of ids by the bytes of their tokens. No output depends on the hash.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
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

inline std::uint64_t hash_of(std::string_view bytes) {
  std::uint64_t hash = bytes.size() * 0x9e3779b97f4a7c15U + 1;
  for (; bytes.size() > 8; bytes.remove_prefix(8)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    hash = hash_of(hash, word);
  }
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), bytes.size());
  return hash_of(hash, word);
}

// A table of ids 0, 1, ... by text. The texts are stored elsewhere.
class TextIndex {
 public:
  // The id of the text, or -1. text_of(id) returns the text of an added id.
  template <class TextOf>
  std::int32_t find(std::string_view text, TextOf&& text_of) const {
    if (slots_.empty()) return -1;
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t slot = hash_of(text) & mask; slots_[slot] >= 0; slot = (slot + 1) & mask) {
      if (text_of(slots_[slot]) == text) return slots_[slot];
    }
    return -1;
  }
  // Adds a text that is not in the table.
  template <class TextOf>
  void add(std::int32_t id, TextOf&& text_of) {
    if (2 * (count_ + 1) > slots_.size()) {
      std::vector<std::int32_t> old(slots_.empty() ? 64 : 2 * slots_.size(), -1);
      old.swap(slots_);
      for (const std::int32_t there : old) {
        if (there >= 0) insert(there, text_of(there));
      }
    }
    insert(id, text_of(id));
    ++count_;
  }

 private:
  void insert(std::int32_t id, std::string_view text) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = hash_of(text) & mask;
    while (slots_[slot] >= 0) slot = (slot + 1) & mask;
    slots_[slot] = id;
  }

  std::vector<std::int32_t> slots_;  // a power of two, at most half full
  std::size_t count_ = 0;
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
  explicit PairTable(std::size_t pairs = 0) {
    std::size_t size = 16;
    while (size < 2 * pairs) size *= 2;
    entries_.assign(size, {none, 0, 0});
  }

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
