// Where a text may be cut so that its parts, encoded one by one, give the tokens of the whole.
#pragma once

#include <cstddef>
#include <string_view>

namespace tally {

// Whether places are known for this pattern: for those with names (tasks/text/splitter.hpp) they are.
bool has_text_borders(std::string_view pattern);

// The last such place behind `from` and before the end of the text; 0 where there is none. Whatever stands behind the
// text, it holds. A place is
//   before a blank (U+0020) that stands between two characters that are no white space: with the patterns of that name
//   no piece goes on into such a blank, and where one begins with it nothing before it matters
//   behind a line end (U+000A) between two such characters: a piece may end in it, and none begins in it but it alone
// In other runs of white space the last character belongs to what follows, which a part would not see.
std::size_t last_text_border(std::string_view text, std::size_t from = 0);

}  // namespace tally
