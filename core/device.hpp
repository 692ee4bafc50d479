// Where a tensor lives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tally {

// cuda_host: the CUDA kernels executed on the CPU (see cuda/README.md).
enum class DeviceType : std::uint8_t { cpu, cuda, cuda_host };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

// "cpu", "cuda", "cuda:1", "cuda-host".
std::string to_text(Device device);

// Where programs make their models: the CPU until set. Operations work where their arguments lie.
Device default_device();
void set_default_device(Device device);

// The reverse; throws Error that lists what is possible.
Device device_from_text(std::string_view text);

}  // namespace tally
