// Tables for the terminal that are Markdown as well.
#pragma once

#include <string>
#include <vector>

namespace tally {

// All rows have the cells of the first, which is the head.
using TableRows = std::vector<std::vector<std::string>>;

// A Markdown table that also reads well as it stands.
std::string markdown_table(const TableRows& rows);

}  // namespace tally
