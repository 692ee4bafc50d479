#include "tasks/text/byte_characters.hpp"

#include <algorithm>

#include "core/utf8.hpp"

namespace tally {
namespace {

constexpr unsigned plain_count = 188;

}  // namespace

std::string blanks_read(std::string_view written) {
  std::string text;
  for (std::size_t at = 0; at < written.size();) {
    const std::size_t next = std::min(written.find(written_blank, at), written.size());
    text += written.substr(at, next - at);
    if (next < written.size()) text += ' ';
    at = next + written_blank.size();
  }
  return text;
}

std::string byte_token(int byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  const auto bits = static_cast<std::size_t>(byte);
  return {'<', '0', 'x', digits[bits >> 4], digits[bits & 15], '>'};
}

std::optional<char> byte_of_token(std::string_view written) {
  for (int byte = 0; byte < byte_count && written.starts_with("<0x"); ++byte) {
    if (written == byte_token(byte)) return static_cast<char>(byte);
  }
  return std::nullopt;
}

std::string byte_characters(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    const unsigned id = ids_by_byte[byte];
    append_utf8(text, id < plain_count ? byte : 0x100 + id - plain_count);
  }
  return text;
}

std::optional<std::string> bytes_of_characters(std::string_view written) {
  std::string bytes;
  for (std::size_t index = 0; index < written.size(); ++index) {
    unsigned code = static_cast<unsigned char>(written[index]);
    if (code >= 0x80) {  // those below U+0144 take two bytes
      if (code < 0xc2 || code > 0xc5 || ++index == written.size()) return std::nullopt;
      const auto next = static_cast<unsigned char>(written[index]);
      if ((next & 0xc0) != 0x80) return std::nullopt;
      code = (code & 0x1f) << 6 | (next & 0x3f);
    }
    if (code < 0x100 && ids_by_byte[code] >= plain_count) return std::nullopt;
    if (code >= 0x100 + 256 - plain_count) return std::nullopt;
    bytes += static_cast<char>(code < 0x100 ? code : bytes_by_id[code - 0x100 + plain_count]);
  }
  return bytes;
}

}  // namespace tally
