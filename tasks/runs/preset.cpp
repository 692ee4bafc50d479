// Presets read from JSON, found by task and name, and applied to a run.
#include "tasks/runs/preset.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "core/error.hpp"
#include "nn/options.hpp"
#include "tasks/data/task.hpp"
#include "tasks/runs/config.hpp"

namespace tally {

Settings parse_settings(std::string_view where, std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  Settings settings;
  for (std::size_t begin = text.find_first_not_of(blanks); begin != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(blanks, begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const std::size_t equals = word.find('=');
    check(equals != std::string_view::npos && equals > 0, where, "'{}' is not option=value", word);
    settings.emplace_back(option_spelling(word.substr(0, equals)), word.substr(equals + 1));
    begin = text.find_first_not_of(blanks, end);
  }
  return settings;
}

void check_keys(std::string_view where, const JsonValue& value, std::initializer_list<std::string_view> keys) {
  const auto known = [&] { return std::vector<std::string>(keys.begin(), keys.end()); };
  if (!value.is_object()) fail(where, "expected an object with {}, found {}", joined(known()), value.kind());
  for (const JsonMember& member : value.members()) {
    if (std::ranges::count(keys, member.name) > 0) continue;
    fail(where, "unknown key '{}'{}", member.name, did_you_mean_or_known(member.name, known()));
  }
}

std::string optional_text(const JsonValue& object, std::string_view key) {
  return object.contains(key) ? object.string(key) : "";
}

std::vector<std::string> texts_in(const JsonValue& object, std::string_view key) {
  const JsonValue* const value = object.find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) return {object.string(key)};
  std::vector<std::string> texts;
  for (const JsonValue& element : value->elements()) {
    check(element.is_string(), "json", "'{}' must hold strings, but has {}", key, element.kind());
    texts.push_back(element.string());
  }
  return texts;
}

void for_each_entry(const JsonValue& entries, const std::string& file,
                    const std::function<void(const std::string& name, const JsonValue& entry)>& take) {
  in_file(file, [&] { entries.members(); });  // checks that it is an object
  for (const JsonMember& member : entries.members()) {
    in_file(formatted("{}: {}", file, member.name), [&] { take(member.name, member.value); });
  }
}

namespace {

constexpr const char* file_name = "tasks/presets.json";

// Replaces settings in place; new ones are appended.
void merge(Settings& settings, const Settings& changes) {
  for (const auto& change : changes) {
    const auto found = std::ranges::find(settings, change.first, [](const auto& setting) { return setting.first; });
    if (found == settings.end()) {
      settings.push_back(change);
    } else {
      *found = change;
    }
  }
}

// "flip-flop/quick" -> "flip-flop", "quick". An entry that is only a base has no task.
void set_names(PresetEntry& entry, const std::string& full_name) {
  const std::size_t slash = full_name.find('/');
  const bool is_base = slash == std::string::npos;
  const std::string task = is_base ? "" : find_task(full_name.substr(0, slash)).name;
  check(entry.task.empty() || entry.task == task, "preset", "its base is a preset of another task, '{}'", entry.task);
  entry.task = task;
  entry.name = is_base ? full_name : full_name.substr(slash + 1);
  check(!entry.name.empty(), "preset", "a preset is called task/name");
}

PresetEntry read_preset(const std::string& full_name, const JsonValue& json,
                        const std::map<std::string, PresetEntry>& before) {
  check_keys("preset", json, {"summary", "source", "note", "base", "settings"});
  PresetEntry entry;
  if (json.contains("base")) {
    const auto base = before.find(json.string("base"));
    check(base != before.end(), "preset", "its base '{}' is no entry before it in the file", json.string("base"));
    entry = base->second;
  }
  set_names(entry, full_name);
  entry.summary = json.string("summary");
  if (json.contains("source")) entry.source = json.string("source");
  if (json.contains("note")) entry.note = json.string("note");
  check(json.contains("settings"), "preset", "'settings' is missing");
  merge(entry.settings, parse_settings("preset", joined(texts_in(json, "settings"), " ")));
  return entry;
}

}  // namespace

std::vector<PresetEntry> read_presets(std::string_view json, const std::string& file) {
  std::map<std::string, PresetEntry> read;
  for_each_entry(parse_json(json, {}, file), file, [&](const std::string& name, const JsonValue& entry) {
    read.emplace(name, read_preset(name, entry, read));
  });
  std::vector<PresetEntry> presets;
  for (auto& [name, entry] : read) {
    if (!entry.task.empty()) presets.push_back(std::move(entry));
  }
  std::ranges::sort(presets, {}, [](const PresetEntry& entry) { return std::tie(entry.task, entry.name); });
  return presets;
}

const std::vector<PresetEntry>& preset_registry() {
  static const std::vector<PresetEntry> presets = read_presets(data_file("presets.json"), file_name);
  return presets;
}

std::string preset_names(std::string_view task) {
  std::set<std::string> names;
  for (const PresetEntry& entry : preset_registry()) {
    if (task.empty() || entry.task == task) names.insert(entry.name);
  }
  return joined({names.begin(), names.end()});
}

const PresetEntry& find_preset(std::string_view task, std::string_view name) {
  std::vector<std::string> names;
  for (const PresetEntry& entry : preset_registry()) {
    if (entry.task != task) continue;
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  check(!names.empty(), "preset", "the task '{}' has no presets, asked for '{}', which would be an entry '{}/{}' in {}",
        task, name, task, name, file_name);
  fail("preset", "the task '{}' has no preset '{}'; it has {}{}", task, name, preset_names(task),
       did_you_mean(name, names));
}

void apply_preset(const PresetEntry& preset, RunConfig& config) {
  in_file(formatted("{}: {}/{}", file_name, preset.task, preset.name), [&] {
    for (const auto& [name, value] : preset.settings) {
      if (name.starts_with("pe.")) {
        const std::string encoding = name.substr(3, name.find('.', 3) - 3);
        const auto is_it = [&](const EncodingChoice::Part& part) { return part.entry->name == encoding; };
        if (std::ranges::none_of(config.encoding.parts, is_it)) {
          EncodingChoice::parse(encoding).set_option(name.substr(3), value);
          continue;
        }
      }
      config.set(name, value);
    }
  });
}

}  // namespace tally
