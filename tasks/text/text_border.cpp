#include "tasks/text/text_border.hpp"

#include <algorithm>

#include "tasks/text/splitter.hpp"

namespace tally {
namespace {

// Whether the bytes around are sure to be no white space. Of several bytes it is only behind C2, E1, E2 and E3,
// whatever else these begin.
bool may_begin_white_space(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte <= ' ' || byte == 0xc2 || (byte >= 0xe1 && byte <= 0xe3);
}
bool may_end_white_space(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const char c = text[text.size() - back];
    if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) return may_begin_white_space(c);
  }
  return text.empty();
}

}  // namespace

bool has_text_borders(std::string_view pattern) {
  return std::ranges::count(split_pattern_names(), split_pattern_name(pattern)) > 0;
}

std::size_t last_text_border(std::string_view text, std::size_t from) {
  for (std::size_t at = text.size(); at-- > from + 1;) {
    if (text[at] != ' ' && text[at] != '\n') continue;
    const bool alone =
        at + 1 < text.size() && !may_begin_white_space(text[at + 1]) && !may_end_white_space(text.substr(0, at));
    if (alone) return text[at] == ' ' ? at : at + 1;
  }
  return 0;
}

}  // namespace tally
