// The contents of a .safetensors or .npy file, without the numbers.
#pragma once

#include <string>

#include "tasks/command_line/command.hpp"

namespace tally {

// Names, types, shapes and metadata. A tensor with a wrong checksum is named, and the command fails. Throws Error for
// other files.
Result file_contents(const std::string& path);

}  // namespace tally
