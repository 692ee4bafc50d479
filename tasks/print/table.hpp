// Tables for the terminal that are also Markdown.
#pragma once

#include <string>
#include <vector>

namespace tally {

// The first row is the header. All rows have the same number of cells.
using TableRows = std::vector<std::vector<std::string>>;

// A Markdown table that is aligned for reading as plain text.
std::string markdown_table(const TableRows& rows);

}  // namespace tally
