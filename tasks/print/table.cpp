#include "tasks/print/table.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace tally {
namespace {

// Number of UTF-8 characters: bytes that are not continuation bytes.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

std::string markdown_table(const TableRows& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 3);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text;
  for (std::size_t n = 0; n < rows.size(); ++n) {
    text += "|";
    for (std::size_t i = 0; i < widths.size(); ++i) {
      text += concat(" ", rows[n][i], std::string(widths[i] - width_of(rows[n][i]), ' '), " |");
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
