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
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // if it fails, the pattern is interpreted
  code_ = {code, [](void* freed) { pcre2_code_free(static_cast<pcre2_code*>(freed)); }};
}

std::optional<std::size_t> TextPattern::match(std::string_view text, std::size_t at, std::uint32_t options) const {
  const auto* const code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(pcre2_match_data_create(1, nullptr),
                                                                                 &pcre2_match_data_free);
  const auto run = [&](std::uint32_t more) {
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, options | more, data.get(),
                       nullptr);
  };
  int count = run(0);
  if (count == PCRE2_ERROR_JIT_STACKLIMIT) count = run(PCRE2_NO_JIT);
  if (count == PCRE2_ERROR_NOMATCH) return std::nullopt;
  check(count >= 0, "pattern", "'{}': {}", pattern_, pattern_error(count));
  return pcre2_get_ovector_pointer(data.get())[1];
}

bool TextPattern::found_in(std::string_view text) const { return match(text, 0, 0).has_value(); }

std::size_t TextPattern::bytes_at(std::string_view text, std::size_t at) const {
  return match(text, at, PCRE2_ANCHORED).value_or(at) - at;
}

}  // namespace tally
