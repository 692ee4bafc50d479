#include "cuda/runtime/allocator.hpp"

#include <algorithm>
#include <map>
#include <mutex>

#include "core/error.hpp"
#include "cuda/runtime/arena.hpp"
#include "cuda/runtime/check.hpp"
#include "cuda/runtime/context.hpp"
#include "cuda/runtime/launch.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {
namespace {

struct DeviceMemory {
  MemoryCounters counters;
  Arena arena;
  int captured = 0;  // number of CapturedMemory objects
};

struct Memory {
  std::mutex mutex;
  std::map<int, DeviceMemory> by_device;
};

// Never destroyed: tensors with static lifetime may be freed after it would be.
Memory& memory() {
  static Memory* const instance = new Memory;
  return *instance;
}

thread_local CapturedMemory* capture = nullptr;

cudaMemPool_t pool_of(const Context& c) {
  cudaMemPool_t pool{};
  CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, c.index));
  return pool;
}

// Null if the device has no memory left.
void* take_from_pool(const Context& c, std::size_t bytes, cudaStream_t stream) {
  void* block = nullptr;
  cudaError_t error = cudaMallocAsync(&block, bytes, stream);
  if (error == cudaErrorMemoryAllocation) {
    // The pool may keep enough memory in blocks of other sizes.
    cudaGetLastError();
    if (capture == nullptr) CUDA_CHECK(cudaStreamSynchronize(c.stream));
    CUDA_CHECK(cudaMemPoolTrimTo(pool_of(c), 0));
    error = cudaMallocAsync(&block, bytes, stream);
  }
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_call(error, "cudaMallocAsync(&block, bytes, stream)", __FILE__, __LINE__);
  return block;
}

// A failure here has one of two causes. Either an earlier kernel failed, and the next check reports it, or the driver
// is already gone at the end of the program.
void give_to_pool(void* block, int index) {
  if (cudaFreeAsync(block, context_of(index).stream) != cudaSuccess) cudaGetLastError();
}

// Adds a segment to the arena in which a tensor of this size fits; returns false if the device has no memory left.
// Larger segments would waste more than they gain (cuda/runtime/graphs.md).
bool grow(DeviceMemory& mine, const Context& c, std::size_t bytes) {
  constexpr std::size_t smallest = std::size_t{2} << 20;
  const BesideTheCapture beside;
  std::size_t size = std::max(Arena::rounded(bytes), smallest);
  void* segment = take_from_pool(c, size, c.uploads);
  if (segment == nullptr) segment = take_from_pool(c, size = Arena::rounded(bytes), c.uploads);
  if (segment == nullptr) return false;
  CUDA_CHECK(cudaStreamSynchronize(c.uploads));  // other streams use it from here on
  ++mine.counters.system_allocations;
  mine.arena.add(segment, size);
  return true;
}

void clear_if_unused(DeviceMemory& mine, int index) {
  if (mine.captured > 0 || mine.arena.used_bytes() > 0) return;
  for (void* const segment : mine.arena.clear()) give_to_pool(segment, index);
}

void free_block(DeviceMemory& mine, void* block, int index) {
  if (mine.arena.give_back(block)) {
    clear_if_unused(mine, index);
  } else {
    give_to_pool(block, index);
  }
}

void count(MemoryCounters& mine, std::size_t bytes) {
  mine.live_bytes += bytes;
  mine.peak_bytes = std::max(mine.peak_bytes, mine.live_bytes);
  ++mine.live_blocks;
}

[[noreturn]] void refuse(const MemoryCounters& mine, std::size_t bytes) {
  fail("memory", "the device has no {} bytes left; {} bytes are in use by tensors", bytes, mine.live_bytes);
}

}  // namespace

void* allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const Context& c = context();
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  DeviceMemory& mine = all.by_device[c.index];
  void* block = capture == nullptr ? take_from_pool(c, bytes, c.stream) : nullptr;
  if (block != nullptr) {
    ++mine.counters.system_allocations;
  } else {
    // Also if the pool has nothing left: no graph needs its memory until its next launch.
    block = mine.arena.take(bytes);
    if (block == nullptr && capture != nullptr && grow(mine, c, bytes)) block = mine.arena.take(bytes);
    if (block == nullptr) refuse(mine.counters, bytes);
    mark_unwritten(block, bytes, c.stream);
  }
  if (capture != nullptr) capture->own.emplace(block, bytes);
  count(mine.counters, bytes);
  return block;
}

void* allocate_beside(std::size_t bytes) {
  const Context& c = context();
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  MemoryCounters& mine = all.by_device[c.index].counters;
  void* const block = take_from_pool(c, bytes, c.uploads);
  if (block == nullptr) refuse(mine, bytes);
  ++mine.system_allocations;
  count(mine, bytes);
  return block;
}

void release(void* block, std::size_t bytes, int index) {
  if (block == nullptr) return;
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  DeviceMemory& mine = all.by_device[index];
  mine.counters.live_bytes -= bytes;
  --mine.counters.live_blocks;
  if (capture != nullptr && capture->own.erase(block) == 0) {
    capture->foreign.push_back(block);
  } else {
    free_block(mine, block, index);
  }
}

void allocate_captured(CapturedMemory* captured) { capture = captured; }

CapturedMemory::CapturedMemory() : index_(context().index) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  ++all.by_device[index_].captured;
}

CapturedMemory::~CapturedMemory() {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  DeviceMemory& mine = all.by_device[index_];
  for (void* const block : foreign) free_block(mine, block, index_);
  --mine.captured;
  clear_if_unused(mine, index_);
}

std::size_t CapturedMemory::bytes() const {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  return all.by_device[index_].arena.bytes();
}

void CapturedMemory::check_free() const {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  const std::size_t used = all.by_device[index_].arena.used_bytes();
  check(used == 0, "memory",
        "captured work needs memory of which tensors use {} bytes: the device has too little memory for both", used);
}

BesideTheCapture::BesideTheCapture() { CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode_)); }
BesideTheCapture::~BesideTheCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }

MemoryCounters counters() {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  return all.by_device[context().index].counters;
}

void reset_peak() {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  MemoryCounters& mine = all.by_device[context().index].counters;
  mine.peak_bytes = mine.live_bytes;
}

double available() {
  std::size_t free = 0;
  std::size_t total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const Context& c = context();
  std::uint64_t reserved = 0;
  std::uint64_t used = 0;
  CUDA_CHECK(cudaMemPoolGetAttribute(pool_of(c), cudaMemPoolAttrReservedMemCurrent, &reserved));
  CUDA_CHECK(cudaMemPoolGetAttribute(pool_of(c), cudaMemPoolAttrUsedMemCurrent, &used));
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  const Arena& arena = all.by_device[c.index].arena;
  return static_cast<double>(free) + static_cast<double>(reserved - used) +
         static_cast<double>(arena.bytes() - arena.used_bytes());
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
