#include "cuda/runtime/arena.hpp"

#include <algorithm>

namespace tally::TALLY_CUDA_NAMESPACE {

void* Arena::take(std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  auto best = blocks_.end();
  for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
    if (block->free && block->bytes >= size && (best == blocks_.end() || block->bytes < best->bytes)) best = block;
  }
  if (best == blocks_.end()) return nullptr;
  std::byte* const data = best->data;
  const std::size_t rest = best->bytes - size;
  best->free = false;
  best->bytes = size;
  if (rest > 0) blocks_.insert(best + 1, {data + size, rest, true, false});
  used_bytes_ += size;
  return data;
}

bool Arena::give_back(const void* block) {
  const auto found = std::ranges::find(blocks_, block, &Block::data);
  if (found == blocks_.end()) return false;
  found->free = true;
  used_bytes_ -= found->bytes;
  if (const auto next = found + 1; next != blocks_.end() && next->free && !next->first) {
    found->bytes += next->bytes;
    blocks_.erase(next);
  }
  if (!found->first && (found - 1)->free) {
    (found - 1)->bytes += found->bytes;
    blocks_.erase(found);
  }
  return true;
}

void Arena::add(void* segment, std::size_t bytes) {
  blocks_.push_back({static_cast<std::byte*>(segment), bytes, true, true});
  bytes_ += bytes;
}

std::vector<void*> Arena::clear() {
  std::vector<void*> segments;
  for (const Block& block : blocks_) segments.push_back(block.data);
  blocks_.clear();
  bytes_ = 0;
  return segments;
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
