#include "core/io/checksum.hpp"

#include <array>
#include <bit>
#include <cstring>

namespace tally {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read and written as they lie in memory");

using Table = std::array<std::array<std::uint32_t, 256>, 8>;

// table[k][b]: the register after byte b and k further zero bytes.
constexpr Table make_table() {
  Table table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78U : 0U);
    table[0][byte] = value;
  }
  for (std::size_t zeros = 1; zeros < table.size(); ++zeros) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t value = table[zeros - 1][byte];
      table[zeros][byte] = (value >> 8) ^ table[0][value & 0xff];
    }
  }
  return table;
}

constexpr Table table = make_table();

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) {
  std::uint32_t value = ~previous;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    word ^= value;
    value = 0;
    for (std::size_t index = 0; index < 8; ++index) value ^= table[7 - index][(word >> (8 * index)) & 0xff];
  }
  for (const std::byte byte : bytes) value = (value >> 8) ^ table[0][(value ^ static_cast<std::uint32_t>(byte)) & 0xff];
  return ~value;
}

std::string checksum_text(std::uint32_t checksum) {
  std::string text;
  for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[(checksum >> shift) & 15];
  return text;
}

}  // namespace tally
