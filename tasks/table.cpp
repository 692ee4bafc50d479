#include "tasks/table.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace tally {

std::string markdown_table(const TableRows& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 3);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (std::size_t n = 0; n < rows.size(); ++n) {
    text += "|";
    for (std::size_t i = 0; i < widths.size(); ++i) {
      text += concat(" ", rows[n][i], std::string(widths[i] - rows[n][i].size(), ' '), " |");
    }
    text += "\n";
    if (n > 0) continue;
    text += "|";
    for (const std::size_t width : widths) text += concat(std::string(width + 2, '-'), "|");
    text += "\n";
  }
  return text;
}

}  // namespace tally
