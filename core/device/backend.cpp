#include "core/device/backend.hpp"

#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/cpu/floating_mode.hpp"
#include "core/distributed/gradient_reducer.hpp"
#include "core/error.hpp"

namespace tally {
namespace {

void copy_bytes(void* target, const void* source, std::size_t bytes) { std::memcpy(target, source, bytes); }

using Clock = std::chrono::steady_clock;

double time_between(void* first, void* last) {
  const auto at = [](void* mark) { return *static_cast<Clock::time_point*>(mark); };
  return std::chrono::duration<double, std::micro>(at(last) - at(first)).count();
}

// Wraps a kernel so that all of it runs in the floating-point mode of kernels, including code outside of parallel_for.
template <auto kernel, class... Arguments>
constexpr auto in_kernel_mode(void (*)(Arguments...)) {
  return +[](Arguments... arguments) {
    const cpu::InKernelMode mode;
    kernel(std::forward<Arguments>(arguments)...);
  };
}

const Backend& cpu_backend() {
  static const Kernels cpu_kernels{
#define KERNEL(name, arguments) in_kernel_mode<&cpu::name>(&cpu::name),
#define KERNEL_SIZE(name, arguments) &cpu::name,
#include "core/device/kernels.def"
#undef KERNEL
#undef KERNEL_SIZE
  };
  static const Backend backend{.name = [] { return ""; },
                               .allocate = allocate_bytes,
                               .release = [](void* block, std::size_t bytes, int) { free_bytes(block, bytes); },
                               .copy_from_host = copy_bytes,
                               .copy_to_host = copy_bytes,
                               .synchronize = [] {},
                               .can_capture = [] { return false; },
                               .set_mark = []() -> void* { return new Clock::time_point(Clock::now()); },
                               .time_between = time_between,
                               .drop_mark = [](void* mark) { delete static_cast<Clock::time_point*>(mark); },
                               .counters = memory_counters,
                               .reset_peak = reset_peak_memory,
                               .available = available_memory,
                               .gradient_reducer = make_host_reducer,
                               .kernels = cpu_kernels};
  return backend;
}

std::atomic<MatmulPrecision> products = MatmulPrecision::f32;

}  // namespace

const Backend& backend(Device device) {
  switch (device.type) {
    case DeviceType::cpu: break;
    case DeviceType::cuda_host:
#if TALLY_WITH_CUDA_HOST
      return cuda_host::backend(device.index);
#else
      fail("device",
           "this build of tally leaves out cuda-host, the CUDA kernels executed on the CPU (CMake option "
           "TALLY_CUDA_HOST, which tests/run.sh has on)");
#endif
    case DeviceType::meta: return meta::backend(static_cast<DeviceType>(device.index));
    case DeviceType::cuda:
#if TALLY_WITH_CUDA
      return cuda::backend(device.index);
#else
      fail("device",
           "this build of tally has no CUDA backend, so '{}' cannot be used; use cpu, or cuda-host to run the CUDA "
           "kernels on the CPU",
           device);
#endif
  }
  return cpu_backend();
}

MemoryCounters memory_counters(Device device) { return backend(device).counters(); }
void reset_peak_memory(Device device) { backend(device).reset_peak(); }
double available_memory(Device device) { return backend(device).available(); }
void synchronize(Device device) { backend(device).synchronize(); }

MatmulPrecision matmul_precision() { return products; }
void set_matmul_precision(MatmulPrecision precision) { products = precision; }

}  // namespace tally
