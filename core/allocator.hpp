// The caching allocator: freed blocks are kept by size and handed out again, because a fresh block costs page faults.
// Sizes are rounded up (to 64 bytes up to 16 KiB, to 1/8 of the power of two below them from there on). Blocks of 2 MiB
// and more lie on huge pages where Linux grants them (madvise). Under a sanitizer nothing is cached, so that use after
// free is seen.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/error.hpp"

namespace tally {

struct MemoryCounters {
  std::size_t live_bytes = 0;            // in use by tensors now
  std::size_t peak_bytes = 0;            // highest live_bytes since the last reset
  std::size_t cached_bytes = 0;          // kept for reuse
  std::uint64_t live_blocks = 0;         // blocks in use now; zero when every tensor is gone
  std::uint64_t system_allocations = 0;  // times memory was taken from the system; steady in a steady training step
};

// A tensor that no machine has memory for.
class TooLarge : public Error {
 public:
  using Error::Error;
};

// What a block of so many bytes counts as.
std::size_t block_bytes(std::size_t bytes);

// A block of at least `bytes` bytes aligned to 64, on huge pages to 2 MiB; null for 0 bytes. Throws Error when the
// system has none left.
void* allocate_bytes(std::size_t bytes);
void free_bytes(void* block, std::size_t bytes);

MemoryCounters memory_counters();
void reset_peak_memory();

// Bytes that this process can still get: free memory, the limits of its control group and its own. Infinite where
// the system tells none of them.
double available_memory();

}  // namespace tally
