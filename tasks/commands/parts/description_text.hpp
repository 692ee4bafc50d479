// The output of `tally describe` as text.
#pragma once

#include <string>

#include "core/io/json.hpp"

namespace tally {

// value: {"name", "found": [...]} as describe.cpp makes it, one section of text for each that the name stands for.
std::string description_text(const JsonValue& value);

}  // namespace tally
