#include "tasks/text/normal_form.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/utf8.hpp"

namespace tally {
namespace {

constexpr std::array<std::pair<NormalForm, std::string_view>, 4> names{
    {{NormalForm::nfc, "NFC"}, {NormalForm::nfd, "NFD"}, {NormalForm::nfkc, "NFKC"}, {NormalForm::nfkd, "NFKD"}}};

bool composes(NormalForm form) { return form == NormalForm::nfc || form == NormalForm::nfkc; }

// All code points below this one are in the form. They do not change their neighbours, and left neighbours do not
// change them.
char32_t first_unstable(NormalForm form) { return form == NormalForm::nfc ? 0x300 : 0x80; }

// `character` is well-formed.
char32_t code_point(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return lead;
  char32_t code = lead & (0x7fU >> character.size());
  for (const char c : character.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3fU);
  return code;
}

// Whether the form keeps the character, whatever precedes it, so that text may be cut before it. Marks and the letters
// of Hangul may compose with the character to their left.
bool is_stable(char32_t code, NormalForm form) {
  if (code < first_unstable(form)) return true;
  if (code >= 0xac00 && code < 0xd7a4) return composes(form);  // syllables of Hangul
  if (code >= 0x1100 && code < 0x1200) return false;
  const utf8proc_property_t* const property = utf8proc_get_property(static_cast<utf8proc_int32_t>(code));
  const bool is_mark = property->category >= UTF8PROC_CATEGORY_MN && property->category <= UTF8PROC_CATEGORY_ME;
  return !is_mark && property->combining_class == 0 && property->decomp_seqindex == UINT16_MAX;
}

// `text` is well-formed.
void append_normalized(std::string_view text, NormalForm form, std::string& result) {
  int options = UTF8PROC_STABLE | (composes(form) ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
  const auto wanted = static_cast<utf8proc_option_t>(options);
  std::vector<utf8proc_int32_t> codes(4 * text.size());
  const auto decompose = [&] {
    return utf8proc_decompose(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                              static_cast<utf8proc_ssize_t>(text.size()), codes.data(),
                              static_cast<utf8proc_ssize_t>(codes.size()), wanted);
  };
  utf8proc_ssize_t count = decompose();
  if (std::cmp_greater(count, codes.size())) {
    codes.resize(static_cast<std::size_t>(count));
    count = decompose();
  }
  if (count >= 0) count = utf8proc_normalize_utf32(codes.data(), count, wanted);
  check(count >= 0, "tokenizer", "{} of '{}': {}", normal_form_name(form), escape_for_print(text),
        utf8proc_errmsg(count));
  for (utf8proc_ssize_t at = 0; at < count; ++at) {
    append_utf8(result, static_cast<char32_t>(codes[static_cast<std::size_t>(at)]));
  }
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// The last character, or the last byte if it is not part of a character.
std::string_view last_character(std::string_view text) {
  for (std::size_t bytes = 1; bytes <= std::min<std::size_t>(4, text.size()); ++bytes) {
    const std::string_view last = text.substr(text.size() - bytes);
    if (is_continuation(last[0])) continue;
    return bytes_of_character(last) == bytes ? last : text.substr(text.size() - 1);
  }
  return text.substr(text.size() - 1);
}

bool is_word(std::string_view character) {
  if (find_invalid_utf8(character) != character.npos) return false;
  const char32_t code = code_point(character);
  constexpr std::pair<char32_t, char32_t> letters_in_circles[] = {
      {0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
  for (const auto& [first, last] : letters_in_circles) {
    if (first <= code && code <= last) return true;
  }
  if (code == 0x200c || code == 0x200d) return true;  // Join_Control
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) || category == UTF8PROC_CATEGORY_PC;
}

bool is_white_space(std::string_view character) {
  if (find_invalid_utf8(character) != character.npos) return false;
  const char32_t code = code_point(character);
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return code == 0x85 || (category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP);
}

}  // namespace

std::string_view normal_form_name(NormalForm form) {
  return std::ranges::find(names, form, &std::pair<NormalForm, std::string_view>::first)->second;
}

std::optional<NormalForm> normal_form_of(std::string_view name) {
  const auto found = std::ranges::find(names, name, &std::pair<NormalForm, std::string_view>::second);
  return found != names.end() ? std::optional(found->first) : std::nullopt;
}

std::string normalized(std::string_view text, NormalForm form) {
  std::string result;
  result.reserve(text.size());
  // `result` holds the text up to `begin`. The text up to `cut` is stable, and from `cut` on if `all_stable`.
  std::size_t begin = 0, cut = 0;
  bool all_stable = true;
  const auto take_until = [&](std::size_t end) {
    const std::string_view part = text.substr(begin, end - begin);
    if (all_stable) {
      result += part;
    } else {
      append_normalized(part, form, result);
    }
    begin = cut = end;
    all_stable = true;
  };
  for (std::size_t at = 0; at < text.size();) {
    const bool is_ascii = static_cast<unsigned char>(text[at]) < 0x80;
    const std::size_t bytes = is_ascii ? 1 : bytes_of_character(text.substr(at));
    const bool is_wrong = !is_ascii && bytes == 1;
    if (is_ascii || is_wrong || is_stable(code_point(text.substr(at, bytes)), form)) {
      if (!all_stable) take_until(at);
      cut = at;
      if (is_wrong) take_until(at + bytes);
    } else if (all_stable) {
      take_until(cut);
      all_stable = false;
    }
    at += bytes;
  }
  take_until(text.size());
  return result;
}

std::size_t bytes_of_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t bytes = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  return bytes <= text.size() && find_invalid_utf8(text.substr(0, bytes)) == text.npos ? bytes : 1;
}

bool begins_with_word(std::string_view text) {
  return !text.empty() && is_word(text.substr(0, bytes_of_character(text)));
}

bool ends_with_word(std::string_view text) { return !text.empty() && is_word(last_character(text)); }

std::size_t leading_white_space(std::string_view text) {
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const std::string_view character = text.substr(bytes, bytes_of_character(text.substr(bytes)));
    if (!is_white_space(character)) break;
    bytes += character.size();
  }
  return bytes;
}

std::size_t trailing_white_space(std::string_view text) {
  const std::size_t whole = text.size();
  while (!text.empty()) {
    const std::string_view character = last_character(text);
    if (!is_white_space(character)) break;
    text.remove_suffix(character.size());
  }
  return whole - text.size();
}

}  // namespace tally
