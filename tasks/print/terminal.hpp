// Colours on a terminal. Text for files and pipes has none.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace tally {

// The codes of ECMA-48.
enum class Style { bold = 1, red = 31, green = 32 };

// Whether the stream is a terminal with colours. A NO_COLOR that is not empty (no-color.org) and TERM=dumb turn them
// off.
bool shows_colours(std::FILE* stream);
// The text in this style if the stream shows colours.
std::string styled(std::string_view text, Style style, std::FILE* stream);
// The headers of Markdown tables in bold if the stream shows colours.
std::string with_bold_headers(std::string text, std::FILE* stream);

}  // namespace tally
