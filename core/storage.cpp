#include "core/storage.hpp"

#include "core/allocator.hpp"
#include "core/error.hpp"

namespace tally {

std::shared_ptr<Storage> Storage::allocate(std::size_t bytes, Device device) {
  check(device.type == DeviceType::cpu, "device", "this build of tally has no CUDA backend, so '", device,
        "' cannot be used; use cpu");
  auto* data = static_cast<std::byte*>(allocate_bytes(bytes));
  return std::shared_ptr<Storage>(new Storage(data, bytes, device));
}

Storage::~Storage() { free_bytes(data_, bytes_); }

}  // namespace tally
