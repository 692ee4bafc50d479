#include "tasks/print/printable.hpp"

#include <algorithm>

#include "core/error.hpp"
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

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string shell_word(const std::string& word) {
  constexpr const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,=+:@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  return formatted("'{}'", replaced(word, "'", "'\\''"));
}

}  // namespace tally
