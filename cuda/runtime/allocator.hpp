// Device memory of tensors. CUDA's own pool keeps freed blocks, in stream order: a block can be reused while the last
// kernel that reads it has not run yet.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "core/device/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

// On the current device; null for 0 bytes. Throws Error if the device has no memory left.
void* allocate(std::size_t bytes);
// The same, in the order of `uploads` (cuda/runtime/context.hpp): available at once, even while this thread's work is
// captured.
void* allocate_beside(std::size_t bytes);
// index: the device of the block. Never throws.
void release(void* block, std::size_t bytes, int index);

// A graph may free only memory that was allocated in it. While this thread's work is captured, its blocks are listed
// here: its own blocks that are not freed yet, with their bytes, and older blocks, `foreign`, which are not freed.
struct CapturedMemory {
  std::unordered_map<void*, std::size_t> own;
  std::vector<void*> foreign;
};
// Lists this thread's blocks in `captured` from now on; null: the capture has ended.
void account_to(CapturedMemory* captured);
// Cleans up after captured work that will not run: its tensors may still exist, but they have no memory to free.
void abandon(const CapturedMemory& captured);

// The counters of the current device.
MemoryCounters counters();
void reset_peak();
// Bytes that allocate can still give: free memory of the driver, and memory kept by the pool and by idle graphs.
double available();

}  // namespace tally::TALLY_CUDA_NAMESPACE
