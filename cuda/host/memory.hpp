// Device memory: blocks of the host, of exact size (AddressSanitizer sees what runs over), filled with NaN. With
// Settings::protect_memory each block has pages of its own, which only kernels and copies can touch.
#pragma once

#include <cstddef>

namespace tally::cuda_host {

// Null when the system has none left.
void* take_device_memory(std::size_t bytes);
// Whether the block was one; it is gone then.
bool free_device_memory(void* block);
// Of a block.
std::size_t device_block_bytes(const void* block);
// Filled with NaN, as if it had just been taken.
void poison_device_memory(void* block);

// Whether all bytes lie in one block of the device / none of them does.
bool in_device_memory(const void* data, std::size_t bytes);
bool in_host_memory(const void* data, std::size_t bytes);

// Kernels, copies and matrix products are being run while one of these lives: device memory can be touched.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

}  // namespace tally::cuda_host
