// Unicode's normal forms (UAX 15), computed by utf8proc, and white space.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tally {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// Converts to and from "NFC" and other names. An unknown name gives nothing.
std::string_view normal_form_name(NormalForm form);
std::optional<NormalForm> normal_form_of(std::string_view name);

// The text in that form. Bytes that are not UTF-8 are unchanged, and no character is composed across them.
std::string normalized(std::string_view text, NormalForm form);

// The number of bytes of the first character, or 1 for a byte that begins none. The text is not empty.
std::size_t bytes_of_character(std::string_view text);
// Bytes of the white space (Unicode's White_Space) that the text begins or ends with.
std::size_t leading_white_space(std::string_view text);
std::size_t trailing_white_space(std::string_view text);
// Words as perplexities of Wikitext-103 count them: each run of characters except white space is a word, and so is each
// line end. Bytes that are not UTF-8 count as characters.
std::int64_t count_words(std::string_view text);

}  // namespace tally
