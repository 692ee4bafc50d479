// Device memory of tensors. Freed blocks are kept by CUDA's own pool, in the order of the stream: a block can be handed
// out again while the kernel that read it last has not run yet.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "core/allocator.hpp"
#include "cuda/runtime.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

// On the current device; null for 0 bytes. Throws Error when it has none left.
void* allocate(std::size_t bytes);
// The same, in the order of `uploads` (cuda/context.hpp): there at once, while this thread's work is captured too.
void* allocate_beside(std::size_t bytes);
// index: the device it was taken from. Never throws.
void release(void* block, std::size_t bytes, int index);

// A graph may free what was allocated in it and nothing else. While this thread's work is captured, its blocks are told
// apart here: those it has not freed, with their bytes, and those from before, `foreign`, which are not freed.
struct CapturedMemory {
  std::unordered_map<void*, std::size_t> own;
  std::vector<void*> foreign;
};
// Of this thread's work, from now on; null: it is not captured any more.
void account_to(CapturedMemory* captured);
// What captured work that is not to run has left: its tensors may live on, but there is no memory of theirs to free.
void abandon(const CapturedMemory& captured);

// Of the current device.
MemoryCounters counters();
void reset_peak();
// Bytes that allocate can still give: what the driver has left, and what the pool and graphs that do not run keep.
double available();

}  // namespace tally::TALLY_CUDA_NAMESPACE
