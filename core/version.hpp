#pragma once

#include <string_view>

namespace tally {
inline constexpr std::string_view version = "0.1.0";
}
