#include "core/device/staging_buffer.hpp"

#include "core/device/backend.hpp"
#include "core/shape.hpp"

namespace tally {

StagingBuffer::StagingBuffer(const std::vector<Part>& parts, Device device) {
  // Offsets are whole elements of any type.
  constexpr std::size_t alignment = 64;
  std::vector<std::size_t> begins;
  std::size_t bytes = 0;
  for (const Part& part : parts) {
    begins.push_back(bytes);
    bytes += static_cast<std::size_t>(part.shape.numel()) * size_of(part.dtype);
    bytes = (bytes + alignment - 1) / alignment * alignment;
  }
  const Device host = host_of(device);
  host_storage_ = Storage::allocate(bytes, host);
  device_storage_ = device == host ? host_storage_ : Storage::allocate(bytes, device);
  for (std::size_t n = 0; n < parts.size(); ++n) {
    const auto offset = static_cast<std::int64_t>(begins[n] / size_of(parts[n].dtype));
    const Strides strides = dense_strides(parts[n].shape);
    on_device_.emplace_back(device_storage_, parts[n].shape, strides, offset, parts[n].dtype);
    on_host_.emplace_back(host_storage_, parts[n].shape, strides, offset, parts[n].dtype);
  }
  const auto count = static_cast<std::int64_t>(bytes);
  Tensor(host_storage_, {count}, dense_strides({count}), 0, DType::boolean).fill(0);
  send();
}

void StagingBuffer::send() {
  if (device_storage_ != host_storage_ && host_storage_->bytes() > 0) {
    backend(device_storage_->device())
        .copy_from_host(device_storage_->data(), host_storage_->data(), host_storage_->bytes());
  }
  device_storage_->bump_version();
}

void StagingBuffer::fetch() {
  if (device_storage_ != host_storage_ && host_storage_->bytes() > 0) {
    backend(device_storage_->device())
        .copy_to_host(host_storage_->data(), device_storage_->data(), host_storage_->bytes());
  }
}

}  // namespace tally
