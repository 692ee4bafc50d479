#include "core/kernels.hpp"

#include "core/backend.hpp"

namespace tally {

const Kernels& kernels(Device device) { return backend(device).kernels; }

}  // namespace tally
