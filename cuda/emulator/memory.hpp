// Device memory: heap blocks of exact size (so that AddressSanitizer detects overruns), filled with NaN. With
// Settings::protect_memory each block has separate pages, which only kernels and copies can access.
#pragma once

#include <cstddef>

namespace tally::cuda_host {

// Null if the system has no memory left.
void* take_device_memory(std::size_t bytes);
// Frees the block; false if it is not device memory.
bool free_device_memory(void* block);
// The size of a block.
std::size_t device_block_bytes(const void* block);
// Fills memory of the device with NaN, as if it were newly allocated.
void poison_device_memory(void* data, std::size_t bytes);

// Whether all bytes are in one block of the device / none of them is in any.
bool in_device_memory(const void* data, std::size_t bytes);
bool in_host_memory(const void* data, std::size_t bytes);

// Device memory is accessible while one of these exists: kernels, copies and matmuls are running.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

}  // namespace tally::cuda_host
