// Marks of a text for a picture: lines at which a paragraph, a section or a function begins. Figures 4 and 6 of CoPE
// (arXiv 2405.18719) show that contextual positions count such lines.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tasks/data/task.hpp"

namespace tally {

// A kind of line, as a PCRE2 pattern that is searched in each line without its end.
struct Mark {
  std::string name, pattern;
};

// The default marks. A line that matches several gets the first: section (Wikitext's " = ", Markdown's "#"), function
// ("func", "def"), paragraph (an empty line, which ends one).
std::vector<Mark> text_marks();

// The number of the mark for each token that contains the first byte of a marked line, and -1 for all others. The text
// before the first line end is a line only at the beginning of a text: after a token without bytes (`Task::beginning`).
// Throws Error for a pattern that PCRE2 refuses.
std::vector<int> find_marks(const Task& task, std::span<const std::int32_t> tokens, std::span<const Mark> marks);

}  // namespace tally
