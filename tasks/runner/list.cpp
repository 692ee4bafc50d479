// tally list: one line for each task, encoding and preset.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/io/json.hpp"
#include "nn/encoding.hpp"
#include "tasks/preset.hpp"
#include "tasks/runner/commands.hpp"
#include "tasks/task.hpp"

namespace tally {
namespace {

// What is said of a task, an encoding or a preset. Options are named only.
struct Line {
  std::string name, summary, formula, paper;
  std::vector<std::string> options;
};

std::vector<std::string> names_of(const std::unique_ptr<Options>& options) {
  std::vector<std::string> names;
  for (const OptionInfo& option : list_options(*options)) names.push_back(option.name);
  return names;
}

std::vector<Line> lines_of(std::string_view kind) {
  std::vector<Line> lines;
  if (kind == "tasks") {
    for (const TaskEntry* entry : task_registry()) {
      lines.push_back({entry->name, entry->summary, "", entry->paper, names_of(entry->make_options())});
    }
  } else if (kind == "encodings") {
    for (const EncodingEntry* entry : encoding_registry()) {
      lines.push_back({entry->name, entry->summary, entry->formula, entry->paper, names_of(entry->make_options())});
    }
  } else {
    for (const PresetEntry* entry : preset_registry()) {
      lines.push_back({concat(entry->task, " ", entry->name), entry->summary, "", "", {}});
    }
  }
  return lines;
}

std::string listing(const std::vector<Line>& lines) {
  std::size_t width = 0;
  for (const Line& line : lines) width = std::max(width, line.name.size());
  std::string text;
  for (const Line& line : lines) {
    text += concat("  ", line.name, std::string(width + 2 - line.name.size(), ' '), line.summary, "\n");
  }
  return text;
}

// A table for a page; a bar would end its cell.
std::string markdown(const std::vector<Line>& lines) {
  const auto cell = [](const std::string& text) {
    std::string result;
    for (const char c : text) result += c == '|' ? "\\|" : std::string(1, c);
    return result;
  };
  std::string text = concat("| name | what it does | options | source |\n|---|---|---|---|\n");
  for (const Line& line : lines) {
    std::string options;
    for (const std::string& option : line.options) options += concat(options.empty() ? "" : " ", "`", option, "`");
    text += concat("| `", line.name, "` | ", cell(line.summary), " | ", options, " | ", cell(line.paper), " |\n");
  }
  return text;
}

JsonValue to_json(const Line& line) {
  JsonValue entry = JsonValue::object({{"name", line.name}, {"summary", line.summary}});
  if (!line.formula.empty()) entry.set("formula", line.formula);
  if (!line.paper.empty()) entry.set("paper", line.paper);
  JsonValue options = JsonValue::array();
  for (const std::string& option : line.options) options.push(option);
  if (!line.options.empty()) entry.set("options", std::move(options));
  return entry;
}

int run_list(const std::string& wanted, bool as_markdown, const CommonOptions& common) {
  const std::vector<std::string> kinds{"tasks", "encodings", "presets"};
  if (!wanted.empty() && std::find(kinds.begin(), kinds.end(), wanted) == kinds.end()) {
    const std::string near = nearest_name(wanted, kinds);
    throw UsageError(concat("[list] there are tasks, encodings and presets, not '", wanted, "'",
                            near.empty() ? "" : concat("; did you mean '", near, "'?")));
  }
  JsonValue all = JsonValue::object();
  for (const std::string& kind : kinds) {
    if (!wanted.empty() && kind != wanted) continue;
    const std::vector<Line> lines = lines_of(kind);
    if (as_markdown) {
      std::cout << markdown(lines);
      continue;
    }
    if (!common.json) {
      std::cout << kind << "\n" << listing(lines);
      continue;
    }
    JsonValue entries = JsonValue::array();
    for (const Line& line : lines) entries.push(to_json(line));
    all.set(kind, std::move(entries));
  }
  if (common.json) std::cout << write_json(all) << "\n";
  return exit_code::done;
}

}  // namespace

std::function<int()> declare_list(CLI::App& app, CommonOptions& common, const std::vector<std::string>&) {
  auto kind = std::make_shared<std::string>();
  app.add_option("KIND", *kind, "tasks, encodings or presets; all without");
  auto as_markdown = std::make_shared<bool>(false);
  app.add_flag("--markdown", *as_markdown, "as a table for a page, with options and sources");
  return [kind, as_markdown, &common] {
    if (*as_markdown && common.json) throw UsageError("[list] --markdown and --json exclude each other");
    return run_list(*kind, *as_markdown, common);
  };
}

}  // namespace tally
