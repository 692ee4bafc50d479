#include "core/device/kernels.hpp"

#include "core/device/backend.hpp"

namespace tally {

const Kernels& kernels(Device device) { return backend(device).kernels; }

}  // namespace tally
