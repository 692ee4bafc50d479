// Storage: bytes on a device with shared ownership, and a counter of in-place changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/device/device.hpp"

namespace tally {

class Storage {
 public:
  // Uninitialised memory, aligned to 64 bytes. Throws Error when the system has none left, naming the size.
  static std::shared_ptr<Storage> allocate(std::size_t bytes, Device device);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  // Raised by every in-place change; backward compares it with the version at the time a value was saved.
  std::uint64_t version() const { return version_; }
  void bump_version() {
    ++version_;
    held_bf16_.reset();
  }

  // A cached copy of the elements in bf16, shared by all holders. Null if there is no holder, or if an element has
  // changed since.
  std::shared_ptr<Storage> cached_bf16() const { return cached_version_ == version_ ? cached_bf16_.lock() : nullptr; }
  void set_cached_bf16(const std::shared_ptr<Storage>& copy) {
    cached_bf16_ = copy;
    cached_version_ = version_;
  }
  // The same. This storage holds the copy until an element changes.
  void hold_cached_bf16(std::shared_ptr<Storage> copy) {
    set_cached_bf16(copy);
    held_bf16_ = std::move(copy);
  }

 private:
  using Release = void (*)(void* block, std::size_t bytes, int index);
  Storage(std::byte* data, std::size_t bytes, Device device, Release release)
      : data_(data), bytes_(bytes), device_(device), release_(release) {}
  std::byte* data_;
  std::size_t bytes_;
  Device device_;
  Release release_;
  std::uint64_t version_ = 0;
  std::weak_ptr<Storage> cached_bf16_;
  std::uint64_t cached_version_ = 0;
  std::shared_ptr<Storage> held_bf16_;
};

}  // namespace tally
