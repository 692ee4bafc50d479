#include "tasks/text/normal_form.hpp"

#include <algorithm>
#include <iterator>

#include "core/error.hpp"
#include "core/utf8.hpp"

namespace tally {
namespace {

struct Range {
  char32_t first, last;
};
constexpr Range unsafe[] = {
#include "tasks/text/normal_form_ranges.inc"
};

// Of a character that is well-formed; 0 of a byte that begins none.
char32_t code_point(std::string_view text, std::size_t& bytes) {
  const auto lead = static_cast<unsigned char>(text[0]);
  bytes = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (text.size() < bytes || find_invalid_utf8(text.substr(0, bytes)) != text.npos) {
    bytes = 1;
    return 0;
  }
  char32_t code = bytes == 1 ? lead : lead & (0x7fU >> bytes);
  for (std::size_t at = 1; at < bytes; ++at) code = code << 6 | (static_cast<unsigned char>(text[at]) & 0x3fU);
  return code;
}

}  // namespace

void check_normal_form(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto lead = static_cast<unsigned char>(text[at]);
    if (lead < 0xcc) {  // below U+0300, or no beginning of a character
      ++at;
      continue;
    }
    std::size_t bytes = 1;
    const char32_t code = code_point(text.substr(at), bytes);
    const Range* range = std::upper_bound(std::begin(unsafe), std::end(unsafe), code,
                                          [](char32_t wanted, const Range& r) { return wanted < r.first; });
    check(range == std::begin(unsafe) || code > std::prev(range)->last, "tokenizer", "byte ", at, " of the text: '",
          escape_for_print(text.substr(at, bytes)),
          "' may not be in Unicode's normal form C, which the tokenizer asks "
          "for; bring the text into that form before");
    at += bytes;
  }
}

}  // namespace tally
