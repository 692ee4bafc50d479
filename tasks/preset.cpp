// Presets found by task and name.
#include "tasks/preset.hpp"

#include <algorithm>
#include <set>
#include <sstream>

#include "core/error.hpp"
#include "nn/options.hpp"

namespace tally {

PresetEntry::PresetEntry(std::string_view task_, std::string_view name_, std::string_view summary_,
                         std::string_view text)
    : task(task_), name(name_), summary(summary_) {
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    check(equals != std::string::npos, "preset", "'", name, "' of ", task, ": '", word, "' is not option=value");
    const std::string key = word.substr(0, equals);
    const bool twice = std::ranges::count(settings, key, [](const auto& setting) { return setting.first; }) > 0;
    check(!twice, "preset", "'", name, "' of ", task, " has ", key, " twice");
    settings.emplace_back(key, word.substr(equals + 1));
  }
}

PresetEntry::PresetEntry(const PresetEntry& base, std::string_view name_, std::string_view summary_,
                         std::string_view text)
    : PresetEntry(base.task, name_, summary_, text) {
  auto changed = std::exchange(settings, base.settings);
  for (auto& change : changed) {
    const auto found = std::ranges::find(settings, change.first, [](const auto& setting) { return setting.first; });
    if (found == settings.end()) {
      settings.push_back(std::move(change));
    } else {
      *found = std::move(change);
    }
  }
}

std::string preset_names(std::string_view task) {
  std::set<std::string> names;
  for (const PresetEntry* entry : preset_registry()) {
    if (task.empty() || entry->task == task) names.insert(entry->name);
  }
  return joined({names.begin(), names.end()});
}

const PresetEntry& find_preset(std::string_view task, std::string_view name) {
  std::vector<std::string> names;
  for (const PresetEntry* entry : preset_registry()) {
    if (entry->task != task) continue;
    if (entry->name == name) return *entry;
    names.push_back(entry->name);
  }
  std::string file = concat(task, "_", name);
  std::ranges::replace(file, '-', '_');
  check(!names.empty(), "preset", "the task '", task, "' has no presets, asked for '", name,
        "', which would be a file of its own, tasks/presets/", file, ".cpp");
  fail("preset", "the task '", task, "' has no preset '", name, "'; it has ", preset_names(task),
       did_you_mean(name, names));
}

}  // namespace tally
