#include "tasks/print/table.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "tasks/print/page.hpp"

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
      text += formatted(" {}{} |", rows[n][i], std::string(widths[i] - width_of(rows[n][i]), ' '));
    }
    text += "\n";
    if (n > 0) continue;
    text += "|";
    for (const std::size_t width : widths) text += formatted("{}|", std::string(width + 2, '-'));
    text += "\n";
  }
  return text;
}

void ResultCell::mark(std::string_view sign, std::string_view member) {
  text += sign;
  json.set(std::string(member), true);
}

ResultCell count_cell(std::int64_t count) { return {with_commas(count), count}; }

std::string spread_text(const std::string& mean, const std::string& deviation, std::int64_t n) {
  if (n == 0) return "-";
  return n == 1 ? mean : formatted("{} ({})", mean, deviation);
}

JsonValue mean_json(const MeanDeviation& mean) {
  return JsonValue::object({{"mean", mean.mean}, {"deviation", mean.deviation}, {"n", mean.n}});
}

ResultCell percent_cell(const std::vector<double>& fractions, bool with_count) {
  const MeanDeviation mean = mean_deviation(fractions);
  std::string text = spread_text(percent_text(mean.mean), percent_number(mean.deviation), mean.n);
  if (with_count && mean.n == 1) text += " (1)";
  if (with_count && mean.n > 1) text.insert(text.size() - 1, formatted(", {}", mean.n));
  return {std::move(text), mean_json(mean)};
}

ResultCell number_cell(const std::vector<double>& values) {
  const MeanDeviation mean = mean_deviation(values);
  return {spread_text(short_number(mean.mean), short_number(mean.deviation, 3), mean.n), mean_json(mean)};
}

std::string ResultTable::text() const {
  TableRows lines(1);
  for (const ResultColumn& column : columns) lines.front().push_back(column.title);
  for (const std::vector<ResultCell>& row : rows) {
    std::vector<std::string>& line = lines.emplace_back();
    for (const ResultCell& cell : row) line.push_back(cell.text);
  }
  std::string all = formatted("{}{}{}\n", title, title.empty() ? "" : "\n\n", markdown_table(lines));
  for (const std::string& note : notes) all += note + "\n\n";
  return all;
}

std::string ResultTable::html(bool shaded) const {
  const auto paragraph = [](const std::string& text) { return formatted("<p class=\"soft\">{}</p>", html_text(text)); };
  std::string all = title.empty() ? "" : paragraph(title);
  all += "<table><tr>";
  for (const ResultColumn& column : columns) all += formatted("<th>{}</th>", html_text(column.title));
  for (const std::vector<ResultCell>& row : rows) {
    all += "</tr><tr>";
    for (const ResultCell& cell : row) {
      const JsonValue* mean = shaded && cell.json.is_object() ? cell.json.find("mean") : nullptr;
      const std::string style = mean == nullptr
                                    ? ""
                                    : formatted(" style=\"background:color-mix(in srgb,#d55e00 {}%,transparent)\"",
                                                std::llround(70 * std::sqrt(mean->real())));
      all += formatted("<td{}>{}</td>", style, html_text(cell.text));
    }
  }
  all += "</tr></table>";
  for (const std::string& note : notes) all += paragraph(note);
  return all;
}

JsonValue ResultTable::json() const {
  JsonValue below = JsonValue::array();
  for (const std::string& note : notes) below.push(note);
  return JsonValue::object({{"title", title}, {"rows", rows_json()}, {"notes", std::move(below)}});
}

JsonValue ResultTable::rows_json() const {
  JsonValue all = JsonValue::array();
  for (const std::vector<ResultCell>& row : rows) {
    JsonValue line = JsonValue::object();
    for (std::size_t c = 0; c < columns.size(); ++c) {
      line.set(columns[c].key.empty() ? columns[c].title : columns[c].key, row[c].json);
    }
    all.push(std::move(line));
  }
  return all;
}

std::string text_of(const std::vector<ResultTable>& tables) {
  std::string text;
  for (const ResultTable& table : tables) text += table.text();
  return text;
}

std::string html_of(const std::vector<ResultTable>& tables, bool shaded) {
  std::string html;
  for (const ResultTable& table : tables) html += table.html(shaded);
  return html;
}

JsonValue json_of(const std::vector<ResultTable>& tables) {
  JsonValue all = JsonValue::array();
  for (const ResultTable& table : tables) all.push(table.json());
  return all;
}

}  // namespace tally
