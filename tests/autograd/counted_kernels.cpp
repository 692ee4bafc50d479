#include "tests/autograd/counted_kernels.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <map>

#include "core/device/backend.hpp"
#include "core/device/kernels.hpp"

namespace tally {
namespace {

enum class Id : std::size_t {
#define KERNEL(name, arguments) name,
#define KERNEL_SIZE(name, arguments) name,
#include "core/device/kernels.def"
#undef KERNEL
#undef KERNEL_SIZE
  count
};

std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(Id::count)> calls{};

template <DeviceType type, auto kernel, Id id>
struct Counted;

template <DeviceType type, class Result, class... Arguments, Result (*Kernels::*kernel)(Arguments...), Id id>
struct Counted<type, kernel, id> {
  static Result call(Arguments... arguments) {
    ++calls[static_cast<std::size_t>(id)];
    return (backend({type, 0}).kernels.*kernel)(arguments...);
  }
};

template <DeviceType type>
const Kernels& counted_kernels() {
  static const Kernels counted{
#define KERNEL(name, arguments) &Counted<type, &Kernels::name, Id::name>::call,
#define KERNEL_SIZE(name, arguments) &Counted<type, &Kernels::name, Id::name>::call,
#include "core/device/kernels.def"
#undef KERNEL
#undef KERNEL_SIZE
  };
  return counted;
}

}  // namespace

// The linker takes this definition and leaves core/device/kernels.cpp, which holds only this function, in its archive.
const Kernels& kernels(Device device) {
  switch (device.type) {
    case DeviceType::cuda: return counted_kernels<DeviceType::cuda>();
    case DeviceType::cuda_host: return counted_kernels<DeviceType::cuda_host>();
    case DeviceType::meta: return backend(device).kernels;
    case DeviceType::cpu: break;
  }
  return counted_kernels<DeviceType::cpu>();
}

namespace testing {

const std::vector<std::string>& kernel_names() {
  static const std::vector<std::string> names = {
#define KERNEL(name, arguments) #name,
#define KERNEL_SIZE(name, arguments) #name,
#include "core/device/kernels.def"
#undef KERNEL
#undef KERNEL_SIZE
  };
  return names;
}

std::uint64_t kernel_calls(const std::string& name) {
  static const std::map<std::string, std::size_t> indices = [] {
    std::map<std::string, std::size_t> result;
    for (const std::string& kernel : kernel_names()) result.emplace(kernel, result.size());
    return result;
  }();
  return calls[indices.at(name)].load();
}

}  // namespace testing
}  // namespace tally
