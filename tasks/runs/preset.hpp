// Presets: named sets of run settings, in tasks/presets.json. A preset names the options that differ from the defaults;
// options given by the user override it.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/io/json.hpp"

namespace tally {

// The JSON files in tasks/ with presets and tables of papers. The build embeds them in the program, which reads
// each at its first use and rejects unknown keys. An Error names the file, the entry and the key:
//   tasks/presets.json: flip-flop/quick: [preset] unknown key 'sumary'; did you mean 'summary'?

// The text of an embedded file, by its name "presets.json"; empty for an unknown name. Written by the build.
std::string_view data_file(std::string_view name);

// Options as they are written on the command line: {"model.width", "64"}, {"optimiser.lr", "1e-3"}.
using Settings = std::vector<std::pair<std::string, std::string>>;

// Settings from "model.width=64 optimiser.lr=1e-3". Throws Error for a word that is not option=value.
Settings parse_settings(std::string_view where, std::string_view text);

// Throws Error unless the value is an object with no other keys than these.
void check_keys(std::string_view where, const JsonValue& value, std::initializer_list<std::string_view> keys);
// An optional member; empty if it is missing. Throws Error unless it is a string.
std::string optional_text(const JsonValue& object, std::string_view key);
// A list of strings, or one string, which is a list of one. Empty if the member is missing.
std::vector<std::string> texts_in(const JsonValue& object, std::string_view key);

// Calls `take` with the name and the value of each entry, in the order of the file. Errors are prefixed with file and
// entry.
void for_each_entry(const JsonValue& entries, const std::string& file,
                    const std::function<void(const std::string& name, const JsonValue& entry)>& take);

struct RunConfig;

struct PresetEntry {
  std::string task, name;
  std::string summary;  // one line
  std::string source;   // the paper with these settings; empty for ours
  std::string note;     // our own choices, the purpose, measurements; may be empty
  Settings settings;    // the base's settings, overridden by the preset's own
};

// Presets in JSON, sorted by task and name:
//   "flip-flop/demo": {
//     "summary": "...", "source": "...", "note": "...",       source and note may be left out; then the base's apply
//     "base": "flip-flop/quick",                              may be left out; an earlier entry of the file
//     "settings": "task.eval-count=1000 eval-count=300"       as on the command line; a list of such texts, too
//   }
// An entry whose name has no task and slash is only a base of others. Throws Error naming file, entry and key.
// apply_preset checks that the run has the options.
std::vector<PresetEntry> read_presets(std::string_view json, const std::string& file);

// All presets of the program.
const std::vector<PresetEntry>& preset_registry();
// "demo, paper, quick": the presets of a task, or of all tasks if none is given.
std::string preset_names(std::string_view task = {});
// Throws Error naming the presets of the task.
const PresetEntry& find_preset(std::string_view task, std::string_view name);

// Sets the options of the preset. Options of encodings that are not part of the run are checked but not set. Throws
// Error naming the preset and the option.
void apply_preset(const PresetEntry& preset, RunConfig& config);

}  // namespace tally
