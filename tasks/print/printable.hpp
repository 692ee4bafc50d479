// Text for people that may hold names from outside: words of the command line, paths, what stands in files.
#pragma once

#include <string>
#include <string_view>

namespace tally {

// One line in which nothing steers a terminal: control characters and bytes that are not UTF-8 are escaped as by
// escape_for_print (core/utf8.hpp), line ends too. Backslashes stay: what is escaped already is not escaped again.
std::string printable(std::string_view text);

}  // namespace tally
