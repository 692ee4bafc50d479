// tally list: one line for each task, encoding, optimiser, preset and suite.
#include <algorithm>
#include <memory>

#include "nn/encoding/encoding.hpp"
#include "nn/optimizer.hpp"
#include "tasks/command_line/commands.hpp"
#include "tasks/command_line/grid.hpp"
#include "tasks/data/task.hpp"
#include "tasks/runs/preset.hpp"
#include "tasks/runs/suite.hpp"

namespace tally {
namespace {

const std::vector<std::string> kinds{"tasks", "encodings", "optimisers", "presets", "suites"};

// The options appear only by name.
template <class Entry>
JsonValue value_of(const Entry& entry) {
  JsonValue line = JsonValue::object({{"name", entry.name}, {"summary", entry.summary}});
  if constexpr (requires { entry.settings; }) line.set("name", formatted("{} {}", entry.task, entry.name));
  if constexpr (requires { entry.parts; })
    line.set("summary", formatted("{} ({})", entry.summary, joined(entry.parts)));
  if constexpr (requires { entry.formula; }) line.set("formula", entry.formula);
  if constexpr (requires { entry.paper; }) line.set("paper", entry.paper);
  if constexpr (requires { entry.source; }) line.set("source", entry.source);
  if constexpr (requires { entry.make_options; }) {
    JsonValue options = JsonValue::array();
    for (const OptionInfo& option : list_options(*entry.make_options())) options.push(option.name);
    if (!options.elements().empty()) line.set("options", std::move(options));
  }
  return line;
}

// All entries of a registry. Entries of the program's own files are values, the others are pointers.
template <class Registry>
JsonValue entries_of(const Registry& registry) {
  JsonValue entries = JsonValue::array();
  for (const auto& entry : registry) {
    if constexpr (requires { *entry; }) {
      entries.push(value_of(*entry));
    } else {
      entries.push(value_of(entry));
    }
  }
  return entries;
}

std::string listing(const JsonValue& entries) {
  std::size_t width = 0;
  for (const JsonValue& entry : entries.elements()) width = std::max(width, entry.string("name").size());
  std::string text;
  for (const JsonValue& entry : entries.elements()) {
    const std::string& name = entry.string("name");
    text += formatted("  {}{}{}\n", name, std::string(width + 2 - name.size(), ' '), entry.string("summary"));
  }
  return text;
}

// A Markdown table. A bar would end its cell.
std::string markdown(const JsonValue& entries) {
  const auto cell = [](const JsonValue& entry, const char* key) {
    return entry.contains(key) ? joined(split_text(entry.string(key), '|'), "\\|") : "";
  };
  std::string text = "| name | what it does | options | source |\n|---|---|---|---|\n";
  for (const JsonValue& entry : entries.elements()) {
    std::string options;
    if (entry.contains("options")) {
      for (const JsonValue& option : entry.elements("options"))
        options += formatted("{}`{}`", options.empty() ? "" : " ", option.string());
    }
    text += formatted("| `{}` | {} | {} | {} |\n", entry.string("name"), cell(entry, "summary"), options,
                      cell(entry, entry.contains("source") ? "source" : "paper"));
  }
  return text;
}

Result run_list(const std::string& wanted, bool as_markdown) {
  if (!wanted.empty() && std::find(kinds.begin(), kinds.end(), wanted) == kinds.end()) {
    throw UsageError(formatted("[list] there are {}, not '{}'{}", joined(kinds), wanted, did_you_mean(wanted, kinds)));
  }
  Result result{.value = JsonValue::object()};
  for (const std::string& kind : kinds) {
    if (!wanted.empty() && kind != wanted) continue;
    JsonValue entries = kind == "tasks"        ? entries_of(task_registry())
                        : kind == "encodings"  ? entries_of(encoding_registry())
                        : kind == "optimisers" ? entries_of(optimizer_registry())
                        : kind == "presets"    ? entries_of(preset_registry())
                                               : entries_of(suite_registry());
    result.text += as_markdown ? markdown(entries) : formatted("{}\n{}", kind, listing(entries));
    result.value.set(kind, std::move(entries));
  }
  return result;
}

}  // namespace

std::function<Result()> declare_list(CommandLine& line) {
  const auto kind = std::make_shared<std::string>();
  const auto as_markdown = std::make_shared<bool>(false);
  line.add("KIND", kind.get(), formatted("{}; all without", joined(kinds)));
  line.add("--markdown", as_markdown.get(), "as a table for a page, with options and sources");
  return [kind, as_markdown, &common = line.common] {
    if (*as_markdown && common.json) throw UsageError("[list] --markdown and --json exclude each other");
    return run_list(*kind, *as_markdown);
  };
}

}  // namespace tally
