// Escapes untrusted text before it is printed: words of the command line, paths, contents of files.
#pragma once

#include <string>
#include <string_view>

namespace tally {

// One line without terminal control sequences. Control characters, line ends and bytes that are not UTF-8 are escaped
// as by escape_for_print (core/utf8.hpp). Backslashes are unchanged, so text that is already escaped is not escaped
// again.
std::string printable(std::string_view text);

// The text with every `from` replaced.
std::string replaced(std::string text, std::string_view from, std::string_view to);

// The word as a shell reads it, in quotes if needed.
std::string shell_word(const std::string& word);

}  // namespace tally
