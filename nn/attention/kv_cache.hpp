// The KV cache of one layer: tensors of earlier tokens, while a text is generated token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/tensor.hpp"

namespace tally {

// One cached tensor. New rows are written after the existing ones if its memory has room, so that a token does not copy
// all earlier rows. Copies share the memory. If several copies append to the same rows, the first appends in place, and
// the others allocate their own memory.
class CacheEntry {
 public:
  const Tensor& tensor() const { return tensor_; }  // undefined at first
  // For cached state that is replaced, because it has no row per token.
  Tensor& state() {
    room_.reset();
    return tensor_;
  }
  // Shapes must agree except along `axis`. Without gradients.
  void append(const Tensor& rows, int axis);

 private:
  // The memory whose first rows are tensor_, and how many of its rows any copy has written.
  struct Room {
    Tensor memory;
    std::int64_t filled;
  };

  Tensor tensor_;
  std::shared_ptr<Room> room_;
};

// By name: keys and values, and tensors of encodings.
using KvCache = std::map<std::string, CacheEntry, std::less<>>;

}  // namespace tally
