// Suites read from JSON and found by name.
#include "tasks/runs/suite.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "nn/options.hpp"
#include "tasks/data/task.hpp"

namespace tally {
namespace {

// "*/quick": the presets of all tasks with this name.
std::vector<const PresetEntry*> presets_named(std::string_view name) {
  std::vector<const PresetEntry*> presets;
  for (const PresetEntry& preset : preset_registry()) {
    const bool wanted = preset.name == name || preset.name.starts_with(formatted("{}-", name));
    if (wanted && !find_task(preset.task).reads_files) presets.push_back(&preset);
  }
  check(!presets.empty(), "suite", "no task has a preset '{}'; there are {}", name, preset_names());
  return presets;
}

const SuiteEntry& find_in(const std::vector<SuiteEntry>& suites, std::string_view name, std::string_view which) {
  std::vector<std::string> names;
  for (const SuiteEntry& entry : suites) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  fail("suite", "there is no {} '{}'; there are {}{}", which, name, joined(names), did_you_mean(name, names));
}

std::vector<const PresetEntry*> presets_of(const std::string& part, const std::vector<SuiteEntry>& before) {
  const std::size_t slash = part.find('/');
  if (slash == std::string::npos) return find_in(before, part, "earlier suite").presets;
  const std::string task = part.substr(0, slash), name = part.substr(slash + 1);
  if (task == "*") return presets_named(name);
  return {&find_preset(task, name)};
}

}  // namespace

std::vector<SuiteEntry> read_suites(std::string_view json, const std::string& file) {
  std::vector<SuiteEntry> suites;
  for_each_entry(parse_json(json, {}, file), file, [&](const std::string& name, const JsonValue& entry) {
    check_keys("suite", entry, {"summary", "parts"});
    SuiteEntry suite{name, entry.string("summary"), texts_in(entry, "parts"), {}};
    check(!suite.parts.empty(), "suite", "'parts' is missing or empty");
    for (const std::string& part : suite.parts) {
      for (const PresetEntry* preset : presets_of(part, suites)) {
        if (std::ranges::count(suite.presets, preset) == 0) suite.presets.push_back(preset);
      }
    }
    suites.push_back(std::move(suite));
  });
  std::ranges::sort(suites, {}, &SuiteEntry::name);
  return suites;
}

const std::vector<SuiteEntry>& suite_registry() {
  static const std::vector<SuiteEntry> suites = read_suites(data_file("suites.json"), "tasks/suites.json");
  return suites;
}

std::string suite_names() {
  std::vector<std::string> names;
  for (const SuiteEntry& entry : suite_registry()) names.push_back(entry.name);
  return joined(names);
}

const SuiteEntry& find_suite(std::string_view name) { return find_in(suite_registry(), name, "suite"); }

}  // namespace tally
