#include "core/io/text.hpp"

#include "core/error.hpp"
#include "core/io/reader.hpp"
#include "core/io/utf8.hpp"

namespace tally {

std::string read_text(const std::string& path, std::uint64_t max_bytes) {
  std::string text = read_whole_file(path, max_bytes);
  check(!text.empty(), "text", escape_for_print(path, 1000), ": is empty");
  const std::size_t invalid = find_invalid_utf8(text);
  check(invalid == std::string::npos, "text", escape_for_print(path, 1000), ": byte ", invalid, " is not UTF-8");
  return text;
}

}  // namespace tally
