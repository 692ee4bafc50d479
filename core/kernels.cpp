#include "core/kernels.hpp"

#include "core/error.hpp"

namespace tally {

const Kernels& kernels(Device device) {
  static const Kernels cpu_kernels{
#define KERNEL(name, arguments) &cpu::name,
#define KERNEL_SIZE(name, arguments) &cpu::name,
#include "core/kernels.def"
#undef KERNEL
#undef KERNEL_SIZE
  };
  check(device.type == DeviceType::cpu, "device", "this build of tally has no CUDA backend, so '", device,
        "' cannot be used; use cpu");
  return cpu_kernels;
}

}  // namespace tally
