// The caching allocator: freed blocks are kept by size and handed out again, because a fresh block costs page faults.
// Sizes are rounded up: to 64 bytes up to 16 KiB, above that to 1/8 of the power of two below the size. Blocks of 2 MiB
// and more use huge pages if Linux grants them (madvise). Under a sanitizer nothing is cached, so that it detects use
// after free.
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

// A tensor that is too large for the memory of any machine.
class TooLarge : public Error {
 public:
  using Error::Error;
};

// The rounded size of a block of `bytes` bytes.
std::size_t block_bytes(std::size_t bytes);

// A block of at least `bytes` bytes aligned to 64, on huge pages to 2 MiB; null for 0 bytes. Throws Error when the
// system has none left.
void* allocate_bytes(std::size_t bytes);
void free_bytes(void* block, std::size_t bytes);

MemoryCounters memory_counters();
void reset_peak_memory();

// Bytes that this process can still get: the least of free memory, the limit of its control group and its own limit.
// Infinite if the system reports none of them.
double available_memory();

}  // namespace tally
