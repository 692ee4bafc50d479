// Presets found by task and name.
#include "tasks/preset.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "nn/options.hpp"

namespace tally {

PresetEntry preset_on(const PresetEntry& base, std::string name, std::string summary,
                      const std::vector<std::pair<std::string, std::string>>& changed) {
  PresetEntry entry{base.task, std::move(name), std::move(summary), base.settings};
  for (const auto& change : changed) {
    const auto place = std::find_if(entry.settings.begin(), entry.settings.end(),
                                    [&](const auto& setting) { return setting.first == change.first; });
    check(place != entry.settings.end(), "preset", "'", entry.name, "' changes ", change.first, ", which '", base.name,
          "' does not set");
    place->second = change.second;
  }
  return entry;
}

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
