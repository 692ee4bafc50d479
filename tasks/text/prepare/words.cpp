#include "tasks/text/prepare/words.hpp"

#include <utility>

namespace tally {
namespace {

// The bytes of the white space at the beginning of the text, or 0. A result beyond the end of the text means that it
// may begin a white space that is cut off.
std::size_t blank_bytes(std::string_view text) {
  const auto byte = [&](std::size_t index) { return static_cast<unsigned char>(text[index]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return lead == ' ' || (lead >= '\t' && lead <= '\r') ? 1 : 0;
  if (lead == 0xc2) {
    if (text.size() < 2) return 2;
    return byte(1) == 0x85 || byte(1) == 0xa0 ? 2 : 0;
  }
  if (lead < 0xe1 || lead > 0xe3) return 0;
  if (text.size() < 2) return 3;
  const unsigned char second = byte(1);
  const bool may_be = lead == 0xe1 ? second == 0x9a : lead == 0xe3 ? second == 0x80 : second == 0x80 || second == 0x81;
  if (!may_be) return 0;
  if (text.size() < 3) return 3;
  const unsigned char third = byte(2);
  if (lead != 0xe2) return third == 0x80 ? 3 : 0;  // U+1680, U+3000
  if (second == 0x81) return third == 0x9f ? 3 : 0;
  return (third >= 0x80 && third <= 0x8a) || third == 0xa8 || third == 0xa9 || third == 0xaf ? 3 : 0;
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
