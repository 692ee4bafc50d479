#include "tasks/text/prepare/words.hpp"

#include <utility>

namespace tally {
namespace {

// Unicode's White_Space beyond ASCII.
constexpr std::string_view white_spaces[] = {"\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003",
                                             "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a",
                                             "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};

// The bytes of the white space at the beginning of the text, or 0. A result beyond the end of the text means that it
// may begin a white space that is cut off.
std::size_t blank_bytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return lead == ' ' || (lead >= '\t' && lead <= '\r') ? 1 : 0;
  if (lead != 0xc2 && (lead < 0xe1 || lead > 0xe3)) return 0;
  for (const std::string_view blank : white_spaces) {
    if (blank.starts_with(text.substr(0, blank.size()))) return blank.size();
  }
  return 0;
}

}  // namespace

void WordCounter::add(std::string_view text) {
  if (held_.empty()) return add_whole(text);
  add_whole(std::exchange(held_, {}).append(text));
}

void WordCounter::add_whole(std::string_view text) {
  while (!text.empty()) {
    const std::size_t blank = blank_bytes(text);
    if (blank > text.size()) {
      held_ = text;
      return;
    }
    if (blank > 0) {
      words_ += text[0] == '\n' ? 1 : 0;
      in_word_ = false;
    } else {
      words_ += in_word_ ? 0 : 1;
      in_word_ = true;
    }
    text.remove_prefix(blank > 0 ? blank : 1);
  }
}

std::int64_t count_words(std::string_view text) {
  WordCounter counter;
  counter.add(text);
  return counter.words();
}

}  // namespace tally
