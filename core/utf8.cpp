#include "core/utf8.hpp"

#include <cstdint>
#include <cstring>

namespace tally {
namespace {

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 0;  // 0: the bytes are not UTF-8
};

CodePoint decode(std::string_view text) {
  const auto byte = [&](std::size_t index) { return static_cast<unsigned char>(text[index]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  char32_t value = lead & (0x7fU >> bytes);
  for (std::size_t index = 1; index < bytes; ++index) {
    if ((byte(index) & 0xc0) != 0x80) return {};
    value = (value << 6) | (byte(index) & 0x3fU);
  }
  constexpr char32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (value < smallest[bytes] || value > 0x10ffff || surrogate) return {};
  return {value, bytes};
}

bool is_plain(char32_t code) {
  const bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
  const bool separator = code == 0x2028 || code == 0x2029;
  const bool direction = code == 0x061c || code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
                         (code >= 0x2066 && code <= 0x2069);
  return !control && !separator && !direction && code != '\\' && code != 0xfeff;
}

std::string hex(char32_t value, int digits) {
  std::string text;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) text += "0123456789abcdef"[(value >> shift) & 15];
  return text;
}

std::string escaped(char32_t code) {
  switch (code) {
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: return code < 0x80 ? "\\x" + hex(code, 2) : "\\u" + hex(code, 4);
  }
}

}  // namespace

std::size_t find_invalid_utf8(std::string_view text) {
  std::size_t position = 0;
  while (position < text.size()) {
    // Most text is ASCII: eight bytes at a time.
    std::uint64_t word = 0;
    if (text.size() - position >= sizeof word) {
      std::memcpy(&word, text.data() + position, sizeof word);
      if ((word & 0x8080808080808080U) == 0) {
        position += sizeof word;
        continue;
      }
    }
    const std::size_t bytes = decode(text.substr(position)).bytes;
    if (bytes == 0) return position;
    position += bytes;
  }
  return std::string_view::npos;
}

void append_utf8(std::string& text, char32_t code) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | ((code >> shift) & 0x3f)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xc0 | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xe0 | (code >> 12));
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xf0 | (code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string escape_for_print(std::string_view text, std::size_t limit) {
  std::string result;
  std::size_t position = 0;
  while (position < text.size()) {
    if (position >= limit) return result + "... (" + std::to_string(text.size()) + " bytes)";
    const CodePoint code = decode(text.substr(position));
    if (code.bytes == 0) {
      result += "\\x" + hex(static_cast<unsigned char>(text[position]), 2);
    } else if (is_plain(code.value)) {
      result += text.substr(position, code.bytes);
    } else {
      result += escaped(code.value);
    }
    position += code.bytes == 0 ? 1 : code.bytes;
  }
  return result;
}

}  // namespace tally
