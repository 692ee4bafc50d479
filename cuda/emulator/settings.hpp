// How kernels are executed on the CPU; for tests and for finding mistakes in kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tally::cuda_host {

// The order in which the threads of a block, and the blocks of a grid, run. The bits of a correct kernel do not depend
// on it.
enum class Schedule : std::uint8_t { forward, reverse, random };

struct Settings {
  Schedule schedule = Schedule::forward;  // TALLY_CUDA_SCHEDULE=forward, reverse, random or random:<seed>
  std::uint64_t seed = 0;                 // of random orders
  // TALLY_CUDA_DELAY=1: work in streams runs late and in a random order, and asynchronous copies to shared memory
  // arrive late, as far as CUDA's rules allow.
  bool delay_streams = false;
  // TALLY_CUDA_PROTECT=1: only kernels and copies can access device memory that is allocated from now on.
  bool protect_memory = false;
  // TALLY_CUDA_SHARED=64, 99, 163 or 227: KiB of shared memory that a block can have, as on GPUs of compute capability
  // 7.5, 8.6 (8.9 and 12 too), 8.0 and 9.0 (10 too).
  int shared_kib = 227;
  std::size_t memory_bytes = 0;  // size of the device's memory; 0: that of the host
};

// Initially from the environment.
Settings settings();
void set_settings(const Settings& settings);

// Number of threads of all kernels started so far, to test how work is distributed.
std::uint64_t started_threads();

}  // namespace tally::cuda_host
