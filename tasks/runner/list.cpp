// tally list: one line for each task, encoding and preset.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <utility>

#include "core/io/json.hpp"
#include "nn/encoding.hpp"
#include "tasks/preset.hpp"
#include "tasks/runner/commands.hpp"
#include "tasks/task.hpp"

namespace tally {
namespace {

using Lines = std::vector<std::pair<std::string, std::string>>;  // name, summary

Lines lines_of(std::string_view kind) {
  Lines lines;
  if (kind == "tasks") {
    for (const TaskEntry* entry : task_registry()) lines.emplace_back(entry->name, entry->summary);
  } else if (kind == "encodings") {
    for (const EncodingEntry* entry : encoding_registry()) lines.emplace_back(entry->name, entry->summary);
  } else {
    for (const PresetEntry* entry : preset_registry()) {
      lines.emplace_back(concat(entry->task, " ", entry->name), entry->summary);
    }
  }
  return lines;
}

std::string listing(const Lines& lines) {
  std::size_t width = 0;
  for (const auto& [name, summary] : lines) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, summary] : lines) {
    text += concat("  ", name, std::string(width + 2 - name.size(), ' '), summary, "\n");
  }
  return text;
}

int run_list(const std::string& wanted, const CommonOptions& common) {
  const std::vector<std::string> kinds{"tasks", "encodings", "presets"};
  if (!wanted.empty() && std::find(kinds.begin(), kinds.end(), wanted) == kinds.end()) {
    const std::string near = nearest_name(wanted, kinds);
    throw UsageError(concat("[list] there are tasks, encodings and presets, not '", wanted, "'",
                            near.empty() ? "" : concat("; did you mean '", near, "'?")));
  }
  JsonValue all = JsonValue::object();
  for (const std::string& kind : kinds) {
    if (!wanted.empty() && kind != wanted) continue;
    const Lines lines = lines_of(kind);
    if (!common.json) {
      std::cout << kind << "\n" << listing(lines);
      continue;
    }
    JsonValue entries = JsonValue::array();
    for (const auto& [name, summary] : lines) {
      entries.push(JsonValue::object({{"name", name}, {"summary", summary}}));
    }
    all.set(kind, std::move(entries));
  }
  if (common.json) std::cout << write_json(all) << "\n";
  return exit_code::done;
}

}  // namespace

std::function<int()> declare_list(CLI::App& app, CommonOptions& common, const std::vector<std::string>&) {
  auto kind = std::make_shared<std::string>();
  app.add_option("KIND", *kind, "tasks, encodings or presets; all without");
  return [kind, &common] { return run_list(*kind, common); };
}

}  // namespace tally
