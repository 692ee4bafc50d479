#include "core/io/base64.hpp"

#include <algorithm>
#include <cstdint>

namespace tally {
namespace {

constexpr std::string_view base64_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t n = 0; n < bytes.size(); n += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - n);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < count ? static_cast<unsigned char>(bytes[n + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k) text += k <= count ? base64_digits[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  std::string bytes;
  std::uint32_t bits = 0;
  for (std::size_t index = 0; index < std::min(text.find('='), text.size()); ++index) {
    const std::size_t digit = base64_digits.find(text[index]);
    if (digit == base64_digits.npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    // The second, third and fourth digit of a group each complete a byte.
    if (index % 4 != 0) bytes += static_cast<char>(bits >> (6 - 2 * (index % 4)));
  }
  // Also refuses padding in the wrong place, and bits that it cuts off and that are not zero.
  return to_base64(bytes) == text ? std::optional(bytes) : std::nullopt;
}

}  // namespace tally
