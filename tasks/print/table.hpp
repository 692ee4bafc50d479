// Tables of results. A table is computed once and printed as text, which is also Markdown, as JSON, or as HTML.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/print/statistics.hpp"

namespace tally {

// The first row is the header. All rows have the same number of cells.
using TableRows = std::vector<std::vector<std::string>>;

// A Markdown table that is aligned for reading as plain text.
std::string markdown_table(const TableRows& rows);

struct ResultCell {
  std::string text;
  JsonValue json;

  // In JSON, the text by default.
  ResultCell(std::string text_) : text(std::move(text_)), json(text) {}
  ResultCell(std::string text_, JsonValue json_) : text(std::move(text_)), json(std::move(json_)) {}
  ResultCell(const char* text_) : ResultCell(std::string(text_)) {}

  // Appends a sign to the text, and a member that is true to the JSON: "†", "untrained_rows".
  void mark(std::string_view sign, std::string_view member);
};

// "26,400"
ResultCell count_cell(std::int64_t count);
// "4.9% (4.4)": a mean and its standard deviation. Only the mean for one value, "-" for none. with_count: the number of
// values is in the brackets too. In JSON: {"mean", "deviation", "n"}.
ResultCell percent_cell(const std::vector<double>& fractions, bool with_count = false);
// "24.65 (0.31)": the same for numbers.
ResultCell number_cell(const std::vector<double>& values);
// "24.65 (0.31)" of texts.
std::string spread_text(const std::string& mean, const std::string& deviation, std::int64_t n);
JsonValue mean_json(const MeanDeviation& mean);

struct ResultColumn {
  std::string title;
  std::string key = {};  // in JSON; empty: the title
};

struct ResultTable {
  std::string title;  // may be empty
  std::vector<ResultColumn> columns;
  std::vector<std::vector<ResultCell>> rows = {};
  std::vector<std::string> notes = {};  // below the table

  // Title, table and notes, each followed by an empty line.
  std::string text() const;
  // The same as elements of a page. shaded: cells of errors are darker for larger ones.
  std::string html(bool shaded = false) const;
  // {"title", "rows", "notes"}
  JsonValue json() const;
  // An object for each row, with a member for each column.
  JsonValue rows_json() const;
};

std::string text_of(const std::vector<ResultTable>& tables);
std::string html_of(const std::vector<ResultTable>& tables, bool shaded = false);
JsonValue json_of(const std::vector<ResultTable>& tables);

}  // namespace tally
