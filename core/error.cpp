#include "core/error.hpp"

#include <charconv>
#include <cmath>

namespace tally {

std::string to_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // Shortest in either notation; 0.0003 reads better than 3e-04.
  const double size = std::fabs(value);
  const bool plain = value == 0 || (size >= 1e-5 && size < 1e15);
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  return std::string(buffer, end);
}

std::string to_text(std::int64_t value) { return std::to_string(value); }
std::string to_text(std::uint64_t value) { return std::to_string(value); }

namespace detail {

std::string filled(std::string_view text, std::span<const std::string> parts) {
  std::string whole;
  std::size_t next = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 2) == "{}") {
      whole += parts[next++];
    } else {
      whole += text[i];
    }
    if (text[i] == '{' || text[i] == '}') ++i;  // the second of a pair
  }
  return whole;
}

void throw_error(std::string_view where, const std::string& what) { throw Error(formatted("[{}] {}", where, what)); }

void throw_internal(std::string_view where, const std::string& what) {
  throw InternalError(formatted("[{}] {} (this is a bug in tally, please report it)", where, what));
}

}  // namespace detail
}  // namespace tally
