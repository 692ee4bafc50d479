// A PCRE2 pattern that is searched in bytes: paths, and lines of texts.
#pragma once

#include <string>
#include <string_view>

namespace tally {

// PCRE2's message for one of its error codes.
std::string pattern_error(int error);

class TextPattern {
 public:
  // "^" and "$" match at the ends of lines. Throws Error naming the pattern when PCRE2 refuses it.
  explicit TextPattern(const std::string& pattern);
  ~TextPattern();
  TextPattern(const TextPattern&) = delete;
  TextPattern& operator=(const TextPattern&) = delete;

  // Throws Error when the search exceeds its limit of steps. For one thread at a time.
  bool found_in(std::string_view text) const;

 private:
  std::string pattern_;
  void* code_ = nullptr;
  void* match_data_ = nullptr;
};

}  // namespace tally
