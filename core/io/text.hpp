// Text from outside: UTF-8, and not empty.
#pragma once

#include <cstdint>
#include <string>

namespace tally {

// The whole file. Throws Error naming it when it is empty, longer than `max_bytes`, or not UTF-8 (with the offset of
// the first wrong byte). A byte order mark at the beginning is kept as it is: it is a character like any other.
std::string read_text(const std::string& path, std::uint64_t max_bytes);

}  // namespace tally
