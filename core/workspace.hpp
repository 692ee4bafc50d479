// Memory that a kernel works in: the kernel's sister tells how much, the operation takes it for the time of one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "core/storage.hpp"

namespace tally {

class Workspace {
 public:
  // Not initialised, aligned to 64 bytes. Throws Error when the device has none left.
  Workspace(std::int64_t bytes, Device device)
      : storage_(bytes > 0 ? Storage::allocate(static_cast<std::size_t>(bytes), device) : nullptr) {}
  void* data() const { return storage_ != nullptr ? storage_->data() : nullptr; }

 private:
  std::shared_ptr<Storage> storage_;
};

// Hands out parts of a workspace one after the other. Without memory it only counts: what a kernel takes and what its
// sister tells are the same code.
class Arena {
 public:
  explicit Arena(void* memory) : begin_(static_cast<std::byte*>(memory)) {}

  // Aligned to 64 bytes; null where only counted.
  template <class T>
  T* take(std::int64_t count) {
    constexpr std::int64_t line = 64;
    if (count == 0) return nullptr;
    T* const part = begin_ != nullptr ? reinterpret_cast<T*>(begin_ + bytes_) : nullptr;
    // One line more: parts of a power of two would fall on the same lines of a cache.
    const auto size = static_cast<std::int64_t>(sizeof(T));  // NOLINT(bugprone-sizeof-expression): pointers, too
    bytes_ += (count * size + line - 1) / line * line + line;
    return part;
  }
  // A T made of these arguments and this arena, which must not look at any data yet; null where only counted.
  template <class T, class... Arguments>
  T* make(const Arguments&... arguments) {
    static_assert(std::is_trivially_destructible_v<T>);
    T* const memory = take<T>(1);
    if (memory != nullptr) return new (memory) T(arguments..., *this);
    T(arguments..., *this);
    return nullptr;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* begin_;
  std::int64_t bytes_ = 0;
};

}  // namespace tally
