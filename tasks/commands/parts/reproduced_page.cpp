#include "tasks/commands/parts/reproduced_page.hpp"

#include <cctype>
#include <ctime>
#include <filesystem>
#include <sstream>

#include "core/error.hpp"
#include "core/io/reader.hpp"
#include "tasks/command_line/progress.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/runs/machine.hpp"

namespace tally {
namespace {

constexpr const char* reading_name = "reading.md";

std::string today() {
  char day[11] = "";
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  std::strftime(day, sizeof day, "%Y-%m-%d", gmtime_r(&now, &utc));
  return day;
}

// "### [Table 2](table2.md), and counting" -> "table-2-and-counting", the anchor that GitHub gives a heading.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  bool address = false;
  for (std::size_t n = heading.find_first_not_of("# "); n < heading.size(); ++n) {
    const char c = heading[n];
    const auto byte = static_cast<unsigned char>(c);
    if (address) {
      address = c != ')';
    } else if (c == ']' && heading.compare(n, 2, "](") == 0) {
      address = true;
    } else if (std::isalnum(byte) != 0 || c == '-' || c == '_' || byte >= 0x80) {
      anchor += static_cast<char>(std::tolower(byte));
    } else if (c == ' ') {
      anchor += '-';
    }
  }
  return anchor;
}

// A line that links to the discussion of the page in reading.md, or nothing.
std::string reading_text(const std::string& path) {
  const std::filesystem::path page(path), reading = page.parent_path() / reading_name;
  std::error_code error;
  if (!std::filesystem::is_regular_file(reading, error)) return "";
  constexpr std::uint64_t most_bytes = 1 << 24;
  std::istringstream lines(read_text(reading.string(), most_bytes));
  const std::string link = formatted("]({})", page.filename().string());
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("#") || line.find(link) == std::string::npos) continue;
    return formatted("What agrees and what does not: [{}]({}#{})\n\n", reading_name, reading_name, anchor_of(line));
  }
  return "";
}

}  // namespace

std::string page_text(const Reproduced& result, const ReproducedPage& page) {
  std::string text = formatted("# {}\n{}", reproduced_text(result), reading_text(page.path));
  if (!page.picture.empty()) text += formatted("![{}]({})\n\n", result.table->title, page.picture);
  text += formatted(
      "```\n{}\n```\n\nWritten on {}. The finished runs trained for {} together, each for itself. {}, on {}.\n\n## The "
      "settings\n\n{}\n## The runs\n\n",
      page.command, today(), duration_text(result.seconds),
      page.work.empty() ? "Nothing was trained by this call" : "This call: " + page.work,
      printable(Machine::here().text()), presets_text(*result.table, result.setting.scale));
  return result.paths.empty() ? text : text + report_text(make_report(result.paths));
}

std::string command_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "0123456789-_./,=+:@%") == std::string::npos;
    text += text.empty() ? "" : " ";
    if (plain) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return text;
}

}  // namespace tally
