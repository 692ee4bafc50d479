#include "core/device/device.hpp"

#include <charconv>

#include "core/error.hpp"

namespace tally {

namespace {
Device chosen;
}

Device meta_of(Device device) { return {DeviceType::meta, static_cast<int>(device.type)}; }
Device host_of(Device device) { return device.type == DeviceType::meta ? meta_of(Device{}) : Device{}; }

Device default_device() { return chosen; }
void set_default_device(Device device) { chosen = device; }

std::string to_text(Device device) {
  switch (device.type) {
    case DeviceType::cpu: return "cpu";
    case DeviceType::cuda_host: return "cuda-host";
    case DeviceType::meta: return "meta";
    case DeviceType::cuda: break;
  }
  return device.index == 0 ? "cuda" : formatted("cuda:{}", device.index);
}

Device device_from_text(std::string_view text) {
  if (text == "cpu") return {DeviceType::cpu, 0};
  if (text == "cuda-host") return {DeviceType::cuda_host, 0};
  if (text == "cuda") return {DeviceType::cuda, 0};
  if (text.starts_with("cuda:")) {
    int index = -1;
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + 5, end, index);
    if (read.ec == std::errc() && read.ptr == end && index >= 0) return {DeviceType::cuda, index};
  }
  fail("device", "'{}' is not a device; use cpu, cuda, cuda:1 or cuda-host", text);
}

}  // namespace tally
