// Modules in files: their parameters by name in the safetensors format, which Python's safetensors reads too.
#pragma once

#include <string>

#include "nn/module.hpp"

namespace tally {

// Writes all parameters, atomically: an existing file is replaced only once the new one is complete.
void save(const Module& module, const std::string& path);
// Reads parameters that save() wrote. Throws Error naming the file and every parameter that is missing, unexpected or
// of another type or shape; the module is then unchanged.
void load(Module& module, const std::string& path);

}  // namespace tally
