// Places of a text that a picture points out: lines at which a paragraph, a section, a function begins. Figures 4 and 6
// of CoPE (arXiv 2405.18719) show that contextual positions count such places.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tasks/data/task.hpp"

namespace tally {

// A kind of line, as a PCRE2 pattern that is looked for in each line without its end.
struct Mark {
  std::string name, pattern;
};

// Where a line is of several kinds, the first names it: section (Wikitext's " = ", Markdown's "#"), function ("func",
// "def"), paragraph (an empty line, which ends one).
std::vector<Mark> text_marks();

// For each token the number of the mark whose line has its first byte in it; -1 for all others. What stands before the
// first line end is no line of its own, unless the text begins there: after a token without bytes (`Task::beginning`).
// Throws Error for a pattern that PCRE2 refuses.
std::vector<int> find_marks(const Task& task, std::span<const std::int32_t> tokens, std::span<const Mark> marks);

}  // namespace tally
