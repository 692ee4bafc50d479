// The device on which a tensor is stored.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tally {

// cuda_host: the CUDA kernels executed on the CPU (see cuda/README.md). meta: computes nothing and counts memory (see
// core/device/meta.cpp); its index is the type of the device that it simulates.
enum class DeviceType : std::uint8_t { cpu, cuda, cuda_host, meta };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

// "cpu", "cuda", "cuda:1", "cuda-host".
std::string to_text(Device device);

// The counting device that simulates this one.
Device meta_of(Device device);
// The type whose kernels run, or are simulated.
constexpr DeviceType type_of_kernels(Device device) {
  return device.type == DeviceType::meta ? static_cast<DeviceType>(device.index) : device.type;
}
constexpr bool is_cpu(Device device) { return type_of_kernels(device) == DeviceType::cpu; }
// The host side of a device, where tensors are assembled before a transfer and arrive after one: the CPU, or the
// counting device that simulates it.
Device host_of(Device device);

// The device on which programs create their models; the CPU until set. Operations run on the device of their arguments.
Device default_device();
void set_default_device(Device device);

// The inverse of to_text; throws an Error that lists the possible names.
Device device_from_text(std::string_view text);

}  // namespace tally
