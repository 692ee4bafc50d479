// Presets found by task and name.
#include "tasks/preset.hpp"

#include "core/error.hpp"

namespace tally {

const PresetEntry& find_preset(std::string_view task, std::string_view name) {
  std::string known;
  for (const PresetEntry* entry : preset_registry()) {
    if (entry->task != task) continue;
    if (entry->name == name) return *entry;
    known += concat(known.empty() ? "" : ", ", entry->name);
  }
  check(!known.empty(), "preset", "the task '", task, "' has no presets, asked for '", name, "'");
  fail("preset", "the task '", task, "' has no preset '", name, "'; it has ", known);
}

}  // namespace tally
