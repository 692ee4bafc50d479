// Divides memory for the tensors of captured work into blocks. It only computes addresses.
#pragma once

#include <cstddef>
#include <vector>

#include "cuda/runtime/runtime.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

// Takes the smallest free block that fits, and merges free neighbours. The layout does not depend on the addresses of
// segments.
class Arena {
 public:
  static constexpr std::size_t alignment = 256;
  static constexpr std::size_t rounded(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

  // Null if every free block is smaller. A block has rounded(bytes) bytes.
  void* take(std::size_t bytes);
  // Returns false if the block is not from this arena.
  bool give_back(const void* block);

  // Adds a segment of a multiple of `alignment` bytes.
  void add(void* segment, std::size_t bytes);
  // Removes all segments and returns them. No block may be in use.
  std::vector<void*> clear();

  std::size_t bytes() const { return bytes_; }  // of all segments
  std::size_t used_bytes() const { return used_bytes_; }

 private:
  struct Block {
    std::byte* data;
    std::size_t bytes;
    bool free;
    bool first;  // in its segment: the block before it is not a neighbour
  };
  std::vector<Block> blocks_;  // all memory, segment by segment
  std::size_t bytes_ = 0, used_bytes_ = 0;
};

}  // namespace tally::TALLY_CUDA_NAMESPACE
