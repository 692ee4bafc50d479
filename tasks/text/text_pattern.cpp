#include "tasks/text/text_pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "core/error.hpp"
#include "core/utf8.hpp"

namespace tally {

std::string pattern_error(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

TextPattern::TextPattern(const std::string& pattern) : pattern_(escape_for_print(pattern)) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_MULTILINE,
                                   &error, &offset, nullptr);
  check(code != nullptr, "pattern", "'{}': byte {}: {}", pattern_, offset, pattern_error(error));
  code_ = code;
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // if it fails, the pattern is interpreted
  match_data_ = pcre2_match_data_create_from_pattern(code, nullptr);
}

TextPattern::~TextPattern() {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(match_data_));
  pcre2_code_free(static_cast<pcre2_code*>(code_));
}

bool TextPattern::found_in(std::string_view text) const {
  const auto match = [&](std::uint32_t options) {
    return pcre2_match(static_cast<const pcre2_code*>(code_), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                       options, static_cast<pcre2_match_data*>(match_data_), nullptr);
  };
  int count = match(0);
  if (count == PCRE2_ERROR_JIT_STACKLIMIT) count = match(PCRE2_NO_JIT);
  check(count >= 0 || count == PCRE2_ERROR_NOMATCH, "pattern", "'{}': {}", pattern_, pattern_error(count));
  return count >= 0;
}

}  // namespace tally
