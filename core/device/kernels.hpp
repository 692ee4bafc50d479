// The kernel table as C++: declarations of the kernels of each backend, a struct of function pointers, and the table of
// a device.
#pragma once

#include <cstdint>

#include "core/device/device.hpp"
#include "core/device/op_kinds.hpp"
#include "core/math/random.hpp"
#include "core/view.hpp"

namespace tally {

struct AttentionCall;
struct AttentionGradients;

// The kernels of each backend. cuda_host holds the kernels of cuda, compiled for and executed on the CPU
// (cuda/README.md).
#define KERNEL(name, arguments) void name arguments;
#define KERNEL_SIZE(name, arguments) std::int64_t name arguments;
namespace cpu {
#include "core/device/kernels.def"
}  // namespace cpu
namespace cuda {
#include "core/device/kernels.def"
}  // namespace cuda
namespace cuda_host {
#include "core/device/kernels.def"
}  // namespace cuda_host
#undef KERNEL
#undef KERNEL_SIZE

struct Kernels {
#define KERNEL(name, arguments) void(*name) arguments;
#define KERNEL_SIZE(name, arguments) std::int64_t(*name) arguments;
#include "core/device/kernels.def"
#undef KERNEL
#undef KERNEL_SIZE
};

// Returns the table of a device and makes it this thread's current device. Throws Error if the backend is not built in
// or the machine has no such device.
const Kernels& kernels(Device device);

}  // namespace tally
