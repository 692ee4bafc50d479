#include "cuda/runtime/allocator.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_set>

#include "core/error.hpp"
#include "cuda/runtime/check.hpp"
#include "cuda/runtime/context.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {
namespace {

struct Counts {
  std::mutex mutex;
  std::map<int, MemoryCounters> by_device;
  std::unordered_set<void*> abandoned;
};

// Never destroyed: tensors with static lifetime may be freed after it would be.
Counts& counts() {
  static Counts* const instance = new Counts;
  return *instance;
}

thread_local CapturedMemory* account = nullptr;

}  // namespace

void account_to(CapturedMemory* captured) { account = captured; }

void abandon(const CapturedMemory& captured) {
  Counts& all = counts();
  const std::lock_guard lock(all.mutex);
  for (const auto& [block, bytes] : captured.own) all.abandoned.insert(block);
}

namespace {

void count(MemoryCounters& mine, std::size_t bytes) {
  mine.live_bytes += bytes;
  mine.peak_bytes = std::max(mine.peak_bytes, mine.live_bytes);
  ++mine.live_blocks;
  ++mine.system_allocations;
}

[[noreturn]] void refuse(const MemoryCounters& mine, std::size_t bytes) {
  cudaGetLastError();  // the text below reports it
  fail("memory", "the device has no {} bytes left; {} bytes are in use by tensors", bytes, mine.live_bytes);
}

}  // namespace

void* allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const Context& c = context();
  Counts& all = counts();
  const std::lock_guard lock(all.mutex);
  MemoryCounters& mine = all.by_device[c.index];
  void* block = nullptr;
  cudaError_t error = cudaMallocAsync(&block, bytes, c.stream);
  if (error == cudaErrorMemoryAllocation && account == nullptr) {
    // Graphs keep their own memory between launches, and the next launch uses it again.
    cudaGetLastError();
    CUDA_CHECK(cudaStreamSynchronize(c.stream));
    CUDA_CHECK(cudaDeviceGraphMemTrim(c.index));
    error = cudaMallocAsync(&block, bytes, c.stream);
  }
  if (error == cudaErrorMemoryAllocation) refuse(mine, bytes);
  check_call(error, "cudaMallocAsync(&block, bytes, stream)", __FILE__, __LINE__);
  if (account != nullptr) account->own.emplace(block, bytes);
  count(mine, bytes);
  return block;
}

void* allocate_beside(std::size_t bytes) {
  const Context& c = context();
  Counts& all = counts();
  const std::lock_guard lock(all.mutex);
  MemoryCounters& mine = all.by_device[c.index];
  void* block = nullptr;
  const cudaError_t error = cudaMallocAsync(&block, bytes, c.uploads);
  if (error == cudaErrorMemoryAllocation) refuse(mine, bytes);
  check_call(error, "cudaMallocAsync(&block, bytes, uploads)", __FILE__, __LINE__);
  count(mine, bytes);
  return block;
}

// A failure here has one of two causes. Either an earlier kernel failed, and the next check reports it, or the driver
// is already gone at the end of the program.
void release(void* block, std::size_t bytes, int index) {
  if (block == nullptr) return;
  Counts& all = counts();
  const std::lock_guard lock(all.mutex);
  MemoryCounters& mine = all.by_device[index];
  mine.live_bytes -= bytes;
  --mine.live_blocks;
  if (all.abandoned.erase(block) > 0) return;
  if (account != nullptr && account->own.erase(block) == 0) {
    account->foreign.push_back(block);
  } else if (cudaFreeAsync(block, context_of(index).stream) != cudaSuccess) {
    cudaGetLastError();
  }
}

MemoryCounters counters() {
  Counts& all = counts();
  const std::lock_guard lock(all.mutex);
  return all.by_device[context().index];
}

void reset_peak() {
  Counts& all = counts();
  const std::lock_guard lock(all.mutex);
  MemoryCounters& mine = all.by_device[context().index];
  mine.peak_bytes = mine.live_bytes;
}

double available() {
  std::size_t free = 0;
  std::size_t total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const int index = context().index;
  cudaMemPool_t pool{};
  CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, index));
  std::uint64_t reserved = 0;
  std::uint64_t used = 0;
  CUDA_CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  CUDA_CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  std::uint64_t graphs_reserved = 0;
  std::uint64_t graphs_used = 0;
  CUDA_CHECK(cudaDeviceGetGraphMemAttribute(index, cudaGraphMemAttrReservedMemCurrent, &graphs_reserved));
  CUDA_CHECK(cudaDeviceGetGraphMemAttribute(index, cudaGraphMemAttrUsedMemCurrent, &graphs_used));
  return static_cast<double>(free) + static_cast<double>(reserved - used) +
         static_cast<double>(graphs_reserved - graphs_used);
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
