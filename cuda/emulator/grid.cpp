// Runs the blocks of a grid on the threads of core/cpu/parallel.hpp, and holds the settings.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/cpu/parallel.hpp"
#include "core/error.hpp"
#include "cuda/emulator/block.hpp"
#include "cuda/emulator/fault.hpp"
#include "cuda/emulator/memory.hpp"
#include "cuda/emulator/runtime_api.hpp"
#include "cuda/emulator/sanitizer.hpp"
#include "cuda/emulator/settings.hpp"

namespace tally::cuda_host {
namespace {

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

Settings settings_of_environment() {
  Settings settings;
  const std::string_view schedule = variable("TALLY_CUDA_SCHEDULE");
  const std::string wrong =
      formatted("TALLY_CUDA_SCHEDULE={} is none of forward, reverse, random and random:<seed>", schedule);
  if (schedule == "reverse") {
    settings.schedule = Schedule::reverse;
  } else if (schedule == "random") {
    settings.schedule = Schedule::random;
  } else if (schedule.starts_with("random:")) {
    settings.schedule = Schedule::random;
    const std::string_view seed = schedule.substr(7);
    const auto [end, error] = std::from_chars(seed.data(), seed.data() + seed.size(), settings.seed);
    check(error == std::errc() && end == seed.data() + seed.size(), "cuda-host", "{}", wrong);
  } else {
    check(schedule.empty() || schedule == "forward", "cuda-host", "{}", wrong);
  }
  settings.delay_streams = variable("TALLY_CUDA_DELAY") == "1";
  settings.protect_memory = variable("TALLY_CUDA_PROTECT") == "1";
  if (const std::string_view shared = variable("TALLY_CUDA_SHARED"); !shared.empty()) {
    constexpr std::pair<std::string_view, int> known[]{{"64", 64}, {"99", 99}, {"163", 163}, {"227", 227}};
    const auto* const found =
        std::find_if(std::begin(known), std::end(known), [&](auto& one) { return one.first == shared; });
    check(found != std::end(known), "cuda-host", "TALLY_CUDA_SHARED={} is none of 64, 99, 163 and 227", shared);
    settings.shared_kib = found->second;
  }
  return settings;
}

struct Shared {
  std::mutex mutex;
  Settings settings = settings_of_environment();
  std::atomic<std::uint64_t> started_threads = 0;
};

Shared& shared() {
  static Shared* const instance = new Shared;
  return *instance;
}

// The block that runs n-th.
std::uint64_t block_of_turn(std::uint64_t n, std::uint64_t blocks, const Settings& settings) {
  if (settings.schedule == Schedule::forward) return n;
  if (settings.schedule == Schedule::reverse) return blocks - 1 - n;
  // A step size that is coprime to the number of blocks visits all of them.
  std::uint64_t step = (settings.seed * 2654435761u + 40503u) % blocks;
  while (std::gcd(step, blocks) != 1) ++step;
  return (n * step + settings.seed) % blocks;
}

}  // namespace

Settings settings() {
  Shared& s = shared();
  const std::lock_guard lock(s.mutex);
  return s.settings;
}

void set_settings(const Settings& settings) {
  Shared& s = shared();
  const std::lock_guard lock(s.mutex);
  s.settings = settings;
}

std::uint64_t started_threads() { return shared().started_threads; }

namespace detail {

cudaError_t check_configuration(dim3 grid, dim3 block, std::size_t shared_bytes) {
  constexpr unsigned most_blocks_yz = 65535, most_blocks_x = 2147483647, most_threads_z = 64;
  const bool fits = grid.count() > 0 && block.count() > 0 && grid.x <= most_blocks_x && grid.y <= most_blocks_yz &&
                    grid.z <= most_blocks_yz && block.count() <= max_block_threads && block.z <= most_threads_z &&
                    shared_bytes <= max_shared_bytes(settings());
  return result(fits ? cudaSuccess : cudaErrorInvalidConfiguration);
}

void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, SourceLine line, void (*body)(const void*),
              const void* arguments) {
  const DeviceAccess access;
  const Launch launch{grid, block, shared_bytes, line, body, arguments};
  const Settings now = settings();
  const std::uint64_t blocks = grid.count();
  shared().started_threads += blocks * block.count();
  char done_token = 0;  // represents the end of the kernel for ThreadSanitizer
  std::atomic<bool> stopped = false;
  std::mutex mutex;
  std::map<std::uint64_t, std::string> errors;
  // The work of few threads is not worth a task on another core.
  constexpr std::uint64_t task_threads = 256;
  const std::uint64_t blocks_per_task = (task_threads + block.count() - 1) / block.count();
  parallel_for_blocks(static_cast<std::int64_t>(blocks), static_cast<std::int64_t>(blocks_per_task),
                      [&](std::int64_t begin, std::int64_t end) {
                        report_faults();
                        for (std::int64_t n = begin; n < end && !stopped; ++n) {
                          const std::uint64_t index = block_of_turn(static_cast<std::uint64_t>(n), blocks, now);
                          std::string error = Block::own().run(launch, now, index, &done_token);
                          if (error.empty()) continue;
                          stopped = true;
                          const std::lock_guard lock(mutex);
                          errors.emplace(index, std::move(error));
                        }
                      });
  tsan_acquire(&done_token);
  check_internal(errors.empty(), "cuda-host", "{}", errors.empty() ? std::string() : errors.begin()->second);
}

}  // namespace detail
}  // namespace tally::cuda_host
