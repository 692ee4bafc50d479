// Counts kernel calls. This program has its own kernel table (counted_kernels.cpp) instead of core/device/kernels.cpp.
// It counts every call and passes it on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tally::testing {

// The names of all kernels of core/device/kernels.def.
const std::vector<std::string>& kernel_names();
// Calls of a kernel since the program began. Throws std::out_of_range for a name that is not in kernels.def.
std::uint64_t kernel_calls(const std::string& name);

}  // namespace tally::testing
