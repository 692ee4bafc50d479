// CRC-32C (Castagnoli, polynomial 0x1EDC6F41 reflected; RFC 3720, appendix B.4), eight table look-ups for eight bytes
// (Kounavis and Berry, "Novel table lookup-based algorithms for high-performance CRC generation", 2008).
// Finds every burst of up to 32 wrong bits; it does not protect against intent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tally {

// Continues the checksum `previous` with more bytes: crc32c(b, crc32c(a)) == crc32c(ab). 0 for no bytes.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous = 0);
inline std::uint32_t crc32c(std::string_view text, std::uint32_t previous = 0) {
  return crc32c(std::as_bytes(std::span(text)), previous);
}

// "e3069283".
std::string checksum_text(std::uint32_t checksum);

}  // namespace tally
