#pragma once

#include <string_view>

namespace tally {

// "0.1.0", the project version in CMakeLists.txt.
extern const std::string_view version;

}  // namespace tally
