// A PCRE2 pattern that is searched in bytes: paths, and lines of texts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tally {

// PCRE2's message for one of its error codes.
std::string pattern_error(int error);

class TextPattern {
 public:
  // "^" and "$" match at the ends of lines. Throws Error naming the pattern when PCRE2 refuses it.
  explicit TextPattern(const std::string& pattern);

  // Throws Error when the search exceeds its limit of steps.
  bool found_in(std::string_view text) const;
  // The number of bytes that match at this place, or 0.
  std::size_t bytes_at(std::string_view text, std::size_t at) const;

 private:
  // The end of the first match, or nothing.
  std::optional<std::size_t> match(std::string_view text, std::size_t at, std::uint32_t options) const;

  std::string pattern_;
  std::shared_ptr<void> code_;
};

}  // namespace tally
