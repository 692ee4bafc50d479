// Where a tensor lives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tally {

// cuda_host: the CUDA kernels executed on the CPU (see cuda/README.md). meta: computes nothing and counts memory (see
// core/meta.cpp); its index is the type of the device that it stands for.
enum class DeviceType : std::uint8_t { cpu, cuda, cuda_host, meta };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

// "cpu", "cuda", "cuda:1", "cuda-host".
std::string to_text(Device device);

// The device that counts what this one would need.
Device meta_of(Device device);
// Whose kernels run, or are stood for.
constexpr DeviceType type_of_kernels(Device device) {
  return device.type == DeviceType::meta ? static_cast<DeviceType>(device.index) : device.type;
}
constexpr bool is_cpu(Device device) { return type_of_kernels(device) == DeviceType::cpu; }
// Where tensors are put together that go to the device, and where they come back to: the CPU, or what stands for it.
Device host_of(Device device);

// Where programs make their models: the CPU until set. Operations work where their arguments lie.
Device default_device();
void set_default_device(Device device);

// The reverse; throws Error that lists what is possible.
Device device_from_text(std::string_view text);

}  // namespace tally
