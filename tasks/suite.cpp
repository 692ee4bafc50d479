// Suites found by name, and the presets in them.
#include "tasks/suite.hpp"

#include <algorithm>
#include <sstream>

#include "core/error.hpp"
#include "nn/options.hpp"
#include "tasks/task.hpp"

namespace tally {
namespace {

void add_presets(const SuiteEntry& suite, std::vector<const PresetEntry*>& presets, std::size_t depth) {
  const auto add = [&](const PresetEntry& preset) {
    if (std::ranges::count(presets, &preset) == 0) presets.push_back(&preset);
  };
  check(depth <= suite_registry().size(), "suite", "'", suite.name, "' holds itself");
  for (const std::string& part : suite.parts) {
    const std::size_t slash = part.find('/');
    if (slash == std::string::npos) {
      add_presets(find_suite(part), presets, depth + 1);
      continue;
    }
    const std::string task = part.substr(0, slash), name = part.substr(slash + 1);
    if (task != "*") {
      add(find_preset(task, name));
      continue;
    }
    for (const PresetEntry* preset : preset_registry()) {
      const bool wanted = preset->name == name || preset->name.starts_with(name + "-");
      if (wanted && !find_task(preset->task).reads_files) add(*preset);
    }
  }
}

}  // namespace

SuiteEntry::SuiteEntry(std::string_view name_, std::string_view summary_, std::string_view text)
    : name(name_), summary(summary_) {
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) parts.push_back(word);
}

std::string suite_names() {
  std::vector<std::string> names;
  for (const SuiteEntry* entry : suite_registry()) names.push_back(entry->name);
  return joined(names);
}

const SuiteEntry& find_suite(std::string_view name) {
  std::vector<std::string> names;
  for (const SuiteEntry* entry : suite_registry()) {
    if (entry->name == name) return *entry;
    names.push_back(entry->name);
  }
  fail("suite", "there is no suite '", name, "'; there are ", suite_names(), did_you_mean(name, names));
}

std::vector<const PresetEntry*> presets_of(const SuiteEntry& suite) {
  std::vector<const PresetEntry*> presets;
  add_presets(suite, presets, 1);
  return presets;
}

}  // namespace tally
