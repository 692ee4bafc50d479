// Hashes for tables of texts and of pairs of tokens. No output depends on them.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>
#include <unordered_map>

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

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    std::uint64_t hash = text.size() * 0x9e3779b97f4a7c15U + 1;
    const auto add = [&](std::size_t bytes) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data(), bytes);
      hash = fold_product(hash ^ hash_secrets[0], word ^ hash_secrets[1]);
    };
    for (; text.size() > 8; text.remove_prefix(8)) add(8);
    add(text.size());
    return static_cast<std::size_t>(hash);
  }
};

// Two adjacent tokens as one number, and a table with such keys.
constexpr std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}
struct PairHash {
  std::size_t operator()(std::uint64_t pair) const {
    return static_cast<std::size_t>(fold_product(pair, 0x9e3779b97f4a7c15U));
  }
};
template <class Value>
using PairTable = std::unordered_map<std::uint64_t, Value, PairHash>;

}  // namespace tally
