// Presets found by task and name.
#include "tasks/preset.hpp"

#include "core/error.hpp"
#include "nn/options.hpp"

namespace tally {

const PresetEntry& find_preset(std::string_view task, std::string_view name) {
  std::string known;
  std::vector<std::string> names;
  for (const PresetEntry* entry : preset_registry()) {
    if (entry->task != task) continue;
    if (entry->name == name) return *entry;
    names.push_back(entry->name);
    known += concat(known.empty() ? "" : ", ", entry->name);
  }
  check(!known.empty(), "preset", "the task '", task, "' has no presets, asked for '", name, "'");
  fail("preset", "the task '", task, "' has no preset '", name, "'; it has ", known, did_you_mean(name, names));
}

}  // namespace tally
