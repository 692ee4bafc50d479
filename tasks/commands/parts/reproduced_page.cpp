#include "tasks/commands/parts/reproduced_page.hpp"

#include <ctime>
#include <filesystem>

#include "core/error.hpp"
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

// A link to the discussion of the results next to the page, or nothing.
std::string reading_text(const std::string& path) {
  std::error_code error;
  const bool exists = std::filesystem::is_regular_file(std::filesystem::path(path).parent_path() / reading_name, error);
  return exists ? formatted("Agreement with the paper: [{}]({})\n\n", reading_name, reading_name) : "";
}

}  // namespace

std::string page_text(const Reproduced& result, const ReproducedPage& page) {
  std::string text = formatted("# {}\n{}", reproduced_text(result), reading_text(page.path));
  if (!page.picture.empty()) text += formatted("![{}]({})\n\n", result.table->title, page.picture);
  text += formatted(
      "```\n{}\n```\n\nWritten on {}. The finished runs trained for {} together, each for itself. This call: {}, on "
      "{}.\n\n## The "
      "settings\n\n{}\n## The runs\n\n",
      page.command, today(), duration_text(result.seconds), page.work, printable(Machine::here().text()),
      presets_text(*result.table, result.setting.scale));
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
