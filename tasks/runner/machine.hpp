// What figures of speed depend on: device, processor, the kernels of the matrix products and their precision, threads.
#pragma once

#include <string>

#include "core/io/json.hpp"

namespace tally {

// "AMD EPYC 9R14": the model as the system tells it.
std::string processor_text();

// {"device": "cuda", "device_name": "NVIDIA H200", "products": "f32", "processor": ..., "cores": ..., "blas":
// "SkylakeX", "threads": ..., "compiler": ..., "version": ...}
JsonValue machine_json();
// The same in one line.
std::string machine_text();

// "g++ 12.2.0".
std::string compiler_text();

}  // namespace tally
