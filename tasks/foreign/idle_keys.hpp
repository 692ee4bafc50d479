// Keys of config.json that do not change the computed function, in files of any library: metadata, storage types, and
// settings of training, generation and other tasks. Some are idle only with certain values.
#pragma once

#include <string_view>

#include "core/io/json.hpp"

namespace tally {

enum class KeyEffect {
  none,     // no effect with this value, or with any
  changes,  // a known key, which with this value changes the function
  unknown
};
// The effect of the member `key` of an object of config.json that no family has read. The value is not null.
KeyEffect effect_of(std::string_view key, const JsonValue& object);

// Whether the key describes the file itself and must not be copied to another.
bool is_about_the_file(std::string_view key);

}  // namespace tally
