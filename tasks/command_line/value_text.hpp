// A JSON value as text for people. Commands without a text of their own print their value this way.
#pragma once

#include <string>

#include "core/io/json.hpp"

namespace tally {

// One member per line, "step  500"; the parts of a member are indented below its name. A list of objects without parts
// is a table, with a header if it has more than two columns. Control characters are escaped.
std::string value_text(const JsonValue& value);

}  // namespace tally
