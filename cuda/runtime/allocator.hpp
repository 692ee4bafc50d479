// Device memory of tensors. CUDA's own pool keeps freed blocks, in stream order: a block can be reused while the last
// kernel that reads it has not run yet. Captured work has an arena instead (cuda/runtime/graphs.md).
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

// The memory of captured work on the current device. The device's arena exists as long as one of these does.
class CapturedMemory {
 public:
  CapturedMemory();
  ~CapturedMemory();
  CapturedMemory(const CapturedMemory&) = delete;
  CapturedMemory& operator=(const CapturedMemory&) = delete;

  // Of the arena.
  std::size_t bytes() const;
  // Throws Error if tensors outside of captured work use the arena, because the device had no other memory.
  void check_free() const;

  // During the capture: the work's blocks that are not freed yet, with their bytes; and older blocks that it has freed.
  // Captured work must leave neither.
  std::unordered_map<void*, std::size_t> own;
  std::vector<void*> foreign;

 private:
  int index_;
};
// This thread's work is captured from now on and has this memory; null: the capture has ended.
void allocate_captured(CapturedMemory* captured);

// Within its scope this thread may make calls that a capture forbids. The mode is restored even after an error.
class BesideTheCapture {
 public:
  BesideTheCapture();
  ~BesideTheCapture();
  BesideTheCapture(const BesideTheCapture&) = delete;
  BesideTheCapture& operator=(const BesideTheCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// The counters of the current device.
MemoryCounters counters();
void reset_peak();
// Bytes that allocate can still give: free memory of the driver, and unused memory of the pool and of the arena.
double available();

}  // namespace tally::TALLY_CUDA_NAMESPACE
