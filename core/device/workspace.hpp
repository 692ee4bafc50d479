// Scratch memory for a kernel. The operation allocates it for one call; a companion `*_workspace` function returns the
// size.
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
  // Uninitialised, aligned to 64 bytes. Throws Error if the device has no memory left.
  Workspace(std::int64_t bytes, Device device)
      : storage_(bytes > 0 ? Storage::allocate(static_cast<std::size_t>(bytes), device) : nullptr) {}
  void* data() const { return storage_ != nullptr ? storage_->data() : nullptr; }

 private:
  std::shared_ptr<Storage> storage_;
};

// Divides a workspace into consecutive arrays. Without memory it only counts, so that the kernel and its `*_workspace`
// function share one code.
class Arena {
 public:
  explicit Arena(void* memory) : begin_(static_cast<std::byte*>(memory)) {}

  // Aligned to 64 bytes; null if only counting.
  template <class T>
  T* take(std::int64_t count) {
    constexpr std::int64_t line = 64;
    if (count == 0) return nullptr;
    T* const part = begin_ != nullptr ? reinterpret_cast<T*>(begin_ + bytes_) : nullptr;
    // One extra cache line: arrays whose size is a power of two would map to the same lines of a cache.
    const auto size = static_cast<std::int64_t>(sizeof(T));  // NOLINT(bugprone-sizeof-expression): pointers, too
    bytes_ += (count * size + line - 1) / line * line + line;
    return part;
  }
  // A T constructed from these arguments and this arena; the constructor must not read data. Null if only counting.
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
