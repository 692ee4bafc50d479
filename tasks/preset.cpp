// Presets found by task and name.
#include "tasks/preset.hpp"

#include <set>

#include "core/error.hpp"
#include "nn/options.hpp"

namespace tally {

std::string preset_names(std::string_view task) {
  std::set<std::string> names;
  for (const PresetEntry* entry : preset_registry()) {
    if (task.empty() || entry->task == task) names.insert(entry->name);
  }
  std::string text;
  for (const std::string& name : names) text += concat(text.empty() ? "" : ", ", name);
  return text;
}

const PresetEntry& find_preset(std::string_view task, std::string_view name) {
  std::vector<std::string> names;
  for (const PresetEntry* entry : preset_registry()) {
    if (entry->task != task) continue;
    if (entry->name == name) return *entry;
    names.push_back(entry->name);
  }
  check(!names.empty(), "preset", "the task '", task, "' has no presets, asked for '", name, "'");
  fail("preset", "the task '", task, "' has no preset '", name, "'; it has ", preset_names(task),
       did_you_mean(name, names));
}

}  // namespace tally
