#include "core/device/allocator.hpp"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/cpu/parallel.hpp"
#include "core/error.hpp"

namespace tally {
namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t small = std::size_t{1} << 14;
constexpr std::size_t huge_page = std::size_t{1} << 21;

struct Cache {
  std::mutex mutex;
  std::unordered_map<std::size_t, std::vector<void*>> blocks;
  MemoryCounters counters;
};

// Never destroyed: tensors with static lifetime may be freed after it would be.
Cache& cache() {
  static Cache* const instance = new Cache;
  return *instance;
}

// Returns null if the system has no memory left. Blocks of huge-page size ask for huge pages: a step that walks through
// hundreds of MiB in 4 KiB pages misses the TLB again and again, and under a hypervisor each miss costs two
// translations. The end of a block that does not fill a huge page stays on small pages. The system may refuse huge
// pages. If address space is too short for the alignment of up to 2 MiB, the block gets small pages.
void* block_of_system(std::size_t size) {
  void* block = nullptr;
#ifdef MADV_HUGEPAGE
  if (size >= huge_page && posix_memalign(&block, huge_page, size) == 0) {
    static_cast<void>(madvise(block, size / huge_page * huge_page, MADV_HUGEPAGE));
    return block;
  }
#endif
  return posix_memalign(&block, alignment, size) == 0 ? block : nullptr;
}

void release(Cache& c) {
  for (auto& [bytes, blocks] : c.blocks) {
    for (void* block : blocks) std::free(block);
  }
  c.blocks.clear();
  c.counters.cached_bytes = 0;
}

}  // namespace

// There are few sizes above 16 KiB, so that a slightly too large block can be reused: at most 1/8 is wasted. Otherwise
// tensors that grow from token to token would leave a block of each size behind.
std::size_t block_bytes(std::size_t bytes) {
  const std::size_t grain = bytes <= small ? alignment : std::bit_floor(bytes) / 8;
  return (bytes + grain - 1) / grain * grain;
}

void* allocate_bytes(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  check(bytes <= SIZE_MAX / 2, "memory", "a tensor of {} bytes cannot exist", bytes);
  const std::size_t size = block_bytes(bytes);
  Cache& c = cache();
  const std::lock_guard lock(c.mutex);
  void* block = nullptr;
  if (const auto found = c.blocks.find(size); found != c.blocks.end() && !found->second.empty()) {
    block = found->second.back();
    found->second.pop_back();
    c.counters.cached_bytes -= size;
  } else {
    block = block_of_system(size);
    if (block == nullptr) {
      release(c);
      block = block_of_system(size);
    }
    check(block != nullptr, "memory", "the system has no {} bytes left; {} bytes are in use by tensors", bytes,
          c.counters.live_bytes);
    ++c.counters.system_allocations;
  }
  c.counters.live_bytes += size;
  c.counters.peak_bytes = std::max(c.counters.peak_bytes, c.counters.live_bytes);
  ++c.counters.live_blocks;
  return block;
}

void free_bytes(void* block, std::size_t bytes) {
  if (block == nullptr) return;
  const std::size_t size = block_bytes(bytes);
  Cache& c = cache();
  const std::lock_guard lock(c.mutex);
  c.counters.live_bytes -= size;
  --c.counters.live_blocks;
#ifdef TALLY_SANITIZED
  std::free(block);
#else
  c.blocks[size].push_back(block);
  c.counters.cached_bytes += size;
#endif
}

MemoryCounters memory_counters() {
  Cache& c = cache();
  const std::lock_guard lock(c.mutex);
  return c.counters;
}

void reset_peak_memory() {
  Cache& c = cache();
  const std::lock_guard lock(c.mutex);
  c.counters.peak_bytes = c.counters.live_bytes;
}

namespace {

// The number in a file of the system; infinity if there is no limit.
double limit_in(const char* path) {
  std::ifstream file(path);
  double value = 0;
  return file >> value ? value : std::numeric_limits<double>::infinity();
}

}  // namespace

double available_memory() {
  double bytes =
      std::min(limit_in("/sys/fs/cgroup/memory.max"), limit_in("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
  rlimit own{};
  if (getrlimit(RLIMIT_AS, &own) == 0 && own.rlim_cur != RLIM_INFINITY) {
    bytes = std::min(bytes, static_cast<double>(own.rlim_cur));
  }
  std::ifstream file("/proc/meminfo");
  for (std::string name, unit; file >> name;) {
    double kibibytes = 0;
    if (name == "MemAvailable:" && file >> kibibytes) return std::min(bytes, 1024 * kibibytes);
    std::getline(file, unit);
  }
  return bytes;
}

}  // namespace tally
