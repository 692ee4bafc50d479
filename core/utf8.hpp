// UTF-8 (RFC 3629): the check that text from outside must pass, and the form in which such text is safe to print.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tally {

// Offset of the first byte that does not belong to well-formed UTF-8 (overlong forms, surrogates and code points over
// U+10FFFF are not well-formed); npos when all of the text is.
std::size_t find_invalid_utf8(std::string_view text);

// Appends one code point, at most U+10FFFF and no surrogate.
void append_utf8(std::string& text, char32_t code_point);

// For messages: control characters, marks that change the direction of writing, backslashes and bytes that are not
// UTF-8 become \n, \u202e, \\, \xff. Text longer than `limit` bytes is cut, and its length is appended.
std::string escape_for_print(std::string_view text, std::size_t limit = 200);

}  // namespace tally
