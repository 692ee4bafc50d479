#include "tasks/print/terminal.hpp"

#include <unistd.h>

#include <cstdlib>

#include "core/error.hpp"

namespace tally {

bool shows_colours(std::FILE* stream) {
  const char *none = std::getenv("NO_COLOR"), *kind = std::getenv("TERM");
  return isatty(fileno(stream)) == 1 && (none == nullptr || *none == '\0') &&
         (kind == nullptr || std::string_view(kind) != "dumb");
}

std::string styled(std::string_view text, Style style, std::FILE* stream) {
  return shows_colours(stream) ? formatted("\033[{}m{}\033[0m", static_cast<int>(style), text) : std::string(text);
}

std::string with_bold_headers(std::string text, std::FILE* stream) {
  constexpr std::string_view below = "\n|--";
  for (std::size_t end = text.find(below); end != text.npos; end = text.find(below, end + 1)) {
    const std::size_t begin = end == 0 ? 0 : text.rfind('\n', end - 1) + 1;
    const std::string header = styled(text.substr(begin, end - begin), Style::bold, stream);
    text.replace(begin, end - begin, header);
    end = begin + header.size();
  }
  return text;
}

}  // namespace tally
