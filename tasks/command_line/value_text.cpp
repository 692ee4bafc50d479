#include "tasks/command_line/value_text.hpp"

#include <algorithm>

#include "nn/options.hpp"
#include "tasks/command_line/grid.hpp"
#include "tasks/print/printable.hpp"

namespace tally {
namespace {

constexpr std::size_t gap = 2;  // between columns; also the indentation

std::string word_of(const JsonValue& value) {
  if (value.is_string()) return printable(value.string());
  if (value.is_real()) return to_text(value.real());
  if (!value.is_array()) return value.is_null() ? "" : write_json(value);
  std::vector<std::string> words;
  for (const JsonValue& element : value.elements()) words.push_back(word_of(element));
  return formatted("[{}]", joined(words));
}

bool is_numbers(const JsonValue& value) {
  return value.is_array() && !value.elements().empty() &&
         std::ranges::all_of(value.elements(), [](const JsonValue& one) { return one.is_number(); });
}

bool is_cell(const JsonValue& value) { return is_numbers(value) || !(value.is_array() || value.is_object()); }

// Whether the value fits on the line of its name.
bool is_word(const JsonValue& value) {
  return is_cell(value) && !(value.is_string() && value.string().find('\n') != std::string::npos);
}

std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t n = 0; n < row.size(); ++n) widths[n] = std::max(widths[n], row[n].size());
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (std::size_t n = 0; n < row.size(); ++n) line += row[n] + std::string(widths[n] + gap - row[n].size(), ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

bool is_table(const JsonValue& value) {
  return std::ranges::all_of(value.elements(), [](const JsonValue& row) {
    return row.is_object() && std::ranges::all_of(row.members(), [](const auto& one) { return is_cell(one.value); });
  });
}

std::string table_text(const JsonValue& value) {
  std::vector<std::vector<std::string>> rows(1);
  for (const JsonValue& row : value.elements()) {
    for (const JsonMember& member : row.members()) {
      if (std::ranges::count(rows[0], member.name) == 0) rows[0].push_back(member.name);
    }
  }
  for (const JsonValue& row : value.elements()) {
    std::vector<std::string>& cells = rows.emplace_back();
    for (const std::string& name : rows[0]) cells.push_back(row.contains(name) ? word_of(row.at(name)) : "");
  }
  if (rows[0].size() <= 2) rows.erase(rows.begin());
  return aligned(rows);
}

std::string indented(const std::string& text) {
  std::vector<std::string> lines = split_text(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  std::string all;
  for (const std::string& line : lines) all += (line.empty() ? "" : std::string(gap, ' ') + line) + "\n";
  return all;
}

}  // namespace

std::string value_text(const JsonValue& value) {
  std::string text;
  if (is_word(value)) return word_of(value) + "\n";
  if (value.is_string()) {
    for (const std::string& line : split_text(value.string(), '\n')) text += printable(line) + "\n";
  } else if (value.is_array()) {
    if (is_table(value)) return table_text(value);
    for (const JsonValue& element : value.elements()) {
      text += formatted("{}{}", text.empty() || is_word(element) ? "" : "\n", value_text(element));
    }
  } else {
    std::vector<std::vector<std::string>> words;  // members of one line that follow each other
    for (const JsonMember& member : value.members()) {
      const bool is_empty = member.value.is_array() && member.value.elements().empty();
      if (is_word(member.value) || is_empty) {
        words.push_back({printable(member.name), is_empty ? "none" : word_of(member.value)});
        continue;
      }
      text += aligned(words) + printable(member.name) + "\n" + indented(value_text(member.value));
      words.clear();
    }
    text += aligned(words);
  }
  return text;
}

}  // namespace tally
