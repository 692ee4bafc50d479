#include "tasks/text/normal_form.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "core/error.hpp"
#include "core/utf8.hpp"

namespace tally {
namespace {

constexpr std::pair<NormalForm, std::string_view> normal_form_names[] = {
    {NormalForm::nfc, "NFC"}, {NormalForm::nfd, "NFD"}, {NormalForm::nfkc, "NFKC"}, {NormalForm::nfkd, "NFKD"}};

const utf8proc_uint8_t* units_of(std::string_view text) {
  return reinterpret_cast<const utf8proc_uint8_t*>(text.data());
}

// `text` is well-formed.
void append_normalized(std::string_view text, NormalForm form, std::string& result) {
  const bool composes = form == NormalForm::nfc || form == NormalForm::nfkc;
  // Form C keeps all characters below U+0300, and the other forms keep ASCII.
  const unsigned char first_changed = form == NormalForm::nfc ? 0xcc : 0x80;
  const auto stays = [&](char c) { return static_cast<unsigned char>(c) < first_changed; };
  if (std::ranges::all_of(text, stays)) {
    result += text;
    return;
  }
  int options = UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(units_of(text), static_cast<utf8proc_ssize_t>(text.size()), &made,
                                             static_cast<utf8proc_option_t>(options));
  check(size >= 0, "tokenizer", "{} of '{}': {}", normal_form_name(form), escape_for_print(text),
        utf8proc_errmsg(size));
  result.append(reinterpret_cast<const char*>(made), static_cast<std::size_t>(size));
  std::free(made);  // NOLINT: utf8proc allocates it
}

struct Character {
  utf8proc_int32_t code = -1;  // of a byte that begins none
  std::size_t bytes = 1;
};

Character first_character(std::string_view text) {
  utf8proc_int32_t code = -1;
  if (const auto byte = static_cast<unsigned char>(text[0]); byte < 0x80) return {byte, 1};
  const auto size = static_cast<utf8proc_ssize_t>(std::min<std::size_t>(text.size(), 4));
  const utf8proc_ssize_t bytes = utf8proc_iterate(units_of(text), size, &code);
  return bytes > 0 ? Character{code, static_cast<std::size_t>(bytes)} : Character{};
}

// Also a last byte that is not part of a character.
Character last_character(std::string_view text) {
  for (std::size_t bytes = 1; bytes <= std::min<std::size_t>(4, text.size()); ++bytes) {
    const Character last = first_character(text.substr(text.size() - bytes));
    if (last.code >= 0) return last.bytes == bytes ? last : Character{};
  }
  return {};
}

bool is_white_space(utf8proc_int32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  const utf8proc_category_t category = utf8proc_category(code);
  return code == 0x85 || (category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP);
}

}  // namespace

std::string_view normal_form_name(NormalForm form) {
  return std::ranges::find(normal_form_names, form, &std::pair<NormalForm, std::string_view>::first)->second;
}

std::optional<NormalForm> normal_form_of(std::string_view name) {
  for (const auto& [form, known] : normal_form_names) {
    if (name == known) return form;
  }
  return std::nullopt;
}

std::string normalized(std::string_view text, NormalForm form) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    // No character composes with a line end.
    const std::string_view line = text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
    const std::size_t valid = std::min(find_invalid_utf8(line), line.size());
    append_normalized(line.substr(0, valid), form, result);
    const std::size_t done = std::min(valid + 1, line.size());
    result += line.substr(valid, done - valid);  // a byte that is not UTF-8
    text.remove_prefix(done);
  }
  return result;
}

std::size_t bytes_of_character(std::string_view text) { return first_character(text).bytes; }

std::size_t leading_white_space(std::string_view text) {
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const Character character = first_character(text.substr(bytes));
    if (!is_white_space(character.code)) break;
    bytes += character.bytes;
  }
  return bytes;
}

std::size_t trailing_white_space(std::string_view text) {
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const Character character = last_character(text.substr(0, text.size() - bytes));
    if (!is_white_space(character.code)) break;
    bytes += character.bytes;
  }
  return bytes;
}

std::int64_t count_words(std::string_view text) {
  std::int64_t words = 0;
  for (bool in_word = false; !text.empty();) {
    const Character character = first_character(text);
    const bool is_blank = is_white_space(character.code);
    words += (!is_blank && !in_word) || character.code == '\n' ? 1 : 0;
    in_word = !is_blank;
    text.remove_prefix(character.bytes);
  }
  return words;
}

}  // namespace tally
