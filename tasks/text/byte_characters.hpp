// Bytes as tokenizers of byte pairs number and write them (GPT-2, Radford et al. 2019): ids 0 to 187 are the bytes that
// are printable in Latin-1 (33..126, 161..172, 174..255), written as the characters of their numbers; ids 188 to 255
// the other bytes in rising order, written as U+0100, U+0101, ...: a blank is id 220 and "\u0120".
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tally {

inline constexpr std::int32_t byte_count = 256;

namespace detail {
constexpr std::array<std::uint8_t, 256> make_bytes_by_id() {
  std::array<std::uint8_t, 256> bytes{};
  std::size_t plain = 0, other = 188;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool is_plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    bytes[is_plain ? plain++ : other++] = static_cast<std::uint8_t>(byte);
  }
  return bytes;
}
constexpr std::array<std::uint8_t, 256> make_ids_by_byte() {
  std::array<std::uint8_t, 256> ids{};
  for (unsigned id = 0; id < 256; ++id) ids[make_bytes_by_id()[id]] = static_cast<std::uint8_t>(id);
  return ids;
}
}  // namespace detail

inline constexpr std::array<std::uint8_t, 256> bytes_by_id = detail::make_bytes_by_id();
inline constexpr std::array<std::uint8_t, 256> ids_by_byte = detail::make_ids_by_byte();

// Vocabularies with byte fallback (SentencePiece; LLaMA) write blanks as U+2581, and the tokens of bytes as "<0x0A>".
inline constexpr std::string_view written_blank = "\xe2\x96\x81";  // U+2581
std::string blanks_read(std::string_view written);
std::string byte_token(int byte);
std::optional<char> byte_of_token(std::string_view written);

// The bytes written as characters, in UTF-8.
std::string byte_characters(std::string_view bytes);
// The reverse; nothing when a character stands for no byte. `written` must be UTF-8.
std::optional<std::string> bytes_of_characters(std::string_view written);

}  // namespace tally
