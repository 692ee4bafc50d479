// Device memory of tensors. Freed blocks are kept by CUDA's own pool, in the order of the stream: a block can be handed
// out again while the kernel that read it last has not run yet.
#pragma once

#include <cstddef>

#include "core/allocator.hpp"
#include "cuda/runtime.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

// On the current device; null for 0 bytes. Throws Error when it has none left.
void* allocate(std::size_t bytes);
// index: the device it was taken from. Never throws.
void release(void* block, std::size_t bytes, int index);

// Of the current device.
MemoryCounters counters();
void reset_peak();

}  // namespace tally::TALLY_CUDA_NAMESPACE
