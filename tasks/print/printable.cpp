#include "tasks/print/printable.hpp"

#include <algorithm>

#include "core/utf8.hpp"

namespace tally {

std::string printable(std::string_view text) {
  std::string result;
  while (true) {
    const std::size_t end = std::min(text.find('\\'), text.size());
    result += escape_for_print(text.substr(0, end), std::string_view::npos);
    if (end == text.size()) return result;
    result += '\\';
    text.remove_prefix(end + 1);
  }
}

}  // namespace tally
