// Whether a text is in Unicode's normal form C (UAX 15), by the quick check alone: texts that would have to be composed
// to know are refused, not changed.
#pragma once

#include <string_view>

namespace tally {

// Throws Error naming the byte of the first character that may not stand in the form, or that would have to be looked
// at together with its neighbours: its quick check is not Yes, or it is a mark that can be reordered. What is not UTF-8
// is passed over.
void check_normal_form(std::string_view text);

}  // namespace tally
