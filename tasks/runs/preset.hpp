// Presets: named sets of run settings, in tasks/presets.json. A preset names the options that differ from the defaults;
// options given by the user override it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tasks/runs/data_file.hpp"

namespace tally {

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
