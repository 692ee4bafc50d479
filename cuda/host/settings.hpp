// How kernels are executed on the CPU; for tests and for finding mistakes in kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tally::cuda_host {

// The order in which the threads of a block, and the blocks of a grid, get to run. A kernel is right only if its bits
// do not depend on it.
enum class Schedule : std::uint8_t { forward, reverse, random };

struct Settings {
  Schedule schedule = Schedule::forward;  // TALLY_CUDA_SCHEDULE=forward, reverse, random or random:<seed>
  std::uint64_t seed = 0;                 // of random orders
  // TALLY_CUDA_DELAY=1: what is put into a stream runs late and in a random order, as far as CUDA's rules allow.
  bool delay_streams = false;
  // TALLY_CUDA_PROTECT=1: device memory taken from now on cannot be read or written by code outside kernels and copies.
  bool protect_memory = false;
  // TALLY_CUDA_SHARED=64, 99, 163 or 227: KiB of shared memory that a block can have, as on GPUs of compute capability
  // 7.5, 8.6 (8.9 and 12 too), 8.0 and 9.0 (10 too).
  int shared_kib = 227;
  std::size_t memory_bytes = 0;  // of the device; 0: what the host has
};

// At first what the environment says.
Settings settings();
void set_settings(const Settings& settings);

// Threads of all kernels that have begun so far: how work was shared out.
std::uint64_t started_threads();

}  // namespace tally::cuda_host
