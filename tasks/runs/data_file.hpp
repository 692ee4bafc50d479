// The JSON files in tasks/ with presets, suites and tables of papers. The build embeds them in the program, which reads
// each at its first use and rejects unknown keys. An Error names the file, the entry and the key:
//   tasks/presets.json: flip-flop/quick: [preset] unknown key 'sumary'; did you mean 'summary'?
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/io/json.hpp"

namespace tally {

// The text of an embedded file, by its name "presets.json"; empty for an unknown name. Written by the build.
std::string_view data_file(std::string_view name);

// Options as they are written on the command line: {"model.width", "64"}, {"optimiser.lr", "1e-3"}.
using Settings = std::vector<std::pair<std::string, std::string>>;

// Settings from "model.width=64 optimiser.lr=1e-3". Throws Error for a word that is not option=value.
Settings parse_settings(std::string_view where, std::string_view text);
// Throws Error for an option that is set twice.
void check_set_once(std::string_view where, const Settings& settings);

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

}  // namespace tally
