// Suites: presets of several tasks that are trained together, for one table of encodings and tasks. They are in
// tasks/suites.json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tasks/runs/preset.hpp"

namespace tally {

struct SuiteEntry {
  std::string name, summary;
  // "mqar/quick": a task and its preset. "recall": all parts of an earlier suite. "*/quick": presets with this name, or
  // with a name that begins with it and a hyphen ("quick-a5"), of every task that needs no files, in the order of
  // tasks.
  std::vector<std::string> parts;
  std::vector<const PresetEntry*> presets;  // of the parts in order, each once
};

// Suites in JSON, sorted by name: "recall": {"summary": "...", "parts": ["mqar/quick", "n-back/quick"]}. Throws Error
// naming file, entry and key, or a part that is neither a preset nor an earlier suite.
std::vector<SuiteEntry> read_suites(std::string_view json, const std::string& file);

// All suites of the program.
const std::vector<SuiteEntry>& suite_registry();
// "all, recall, state"
std::string suite_names();
// Throws Error with the nearest known name.
const SuiteEntry& find_suite(std::string_view name);

}  // namespace tally
