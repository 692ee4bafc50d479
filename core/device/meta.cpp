// A counting device: its kernels return at once and its memory is only counted. Running a step on it reports the memory
// the real device would need.
//
// Tensors get an invalid address instead of null, because null means an absent tensor. Reading there is a fault.
// Numbers read back are 0.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/device/backend.hpp"
#include "core/device/graph.hpp"
#include "core/distributed/gradient_reducer.hpp"

namespace tally::meta {
namespace {

template <DeviceType stands_for>
struct Counted {
  static inline std::mutex mutex;
  static inline MemoryCounters counters;
};

// Larger totals are not counted: they fit nowhere, and sums stay far from 64-bit overflow.
constexpr std::size_t most_bytes = std::size_t{1} << (std::numeric_limits<std::size_t>::digits - 8);

// An address that faults on access.
void* address() {
  return reinterpret_cast<void*>(std::uintptr_t{64});  // NOLINT(performance-no-int-to-ptr): no object is there
}

// The counters as the real device would report them.
template <DeviceType stands_for>
std::size_t size_of_block(std::size_t bytes) {
  return stands_for == DeviceType::cpu ? block_bytes(bytes) : bytes;
}

thread_local bool counts = true;

template <DeviceType stands_for>
void* allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (!counts) return address();
  using Own = Counted<stands_for>;
  const std::lock_guard lock(Own::mutex);
  MemoryCounters& own = Own::counters;
  if (bytes > most_bytes || own.live_bytes + size_of_block<stands_for>(bytes) > most_bytes) {
    throw TooLarge(formatted("[memory] a tensor of {} bytes beside {} others", bytes, own.live_bytes));
  }
  own.live_bytes += size_of_block<stands_for>(bytes);
  own.peak_bytes = std::max(own.peak_bytes, own.live_bytes);
  ++own.live_blocks;
  return address();
}

template <DeviceType stands_for>
void release(void* block, std::size_t bytes, int) {
  if (block == nullptr || !counts) return;
  using Own = Counted<stands_for>;
  const std::lock_guard lock(Own::mutex);
  Own::counters.live_bytes -= size_of_block<stands_for>(bytes);
  --Own::counters.live_blocks;
}

// A captured graph keeps copies of all data from the host: the sizes of these blocks.
using CapturedWork = std::vector<std::size_t>;
thread_local std::unique_ptr<CapturedWork> capturing;

template <DeviceType stands_for>
void copy_from_host(void*, const void*, std::size_t bytes) {
  if (capturing == nullptr) return;
  allocate<stands_for>(bytes);
  capturing->push_back(bytes);
}

template <DeviceType stands_for>
void destroy(void* graph) {
  const std::unique_ptr<CapturedWork> owned(static_cast<CapturedWork*>(graph));
  for (const std::size_t bytes : *owned) release<stands_for>(address(), bytes, 0);
}

void copy_to_host(void* target, const void*, std::size_t bytes) {
  if (capturing != nullptr) refuse_read_back();
  if (target != address()) std::memset(target, 0, bytes);
}

// A kernel that takes these arguments and does nothing.
template <class... Arguments>
constexpr auto nothing(void (*)(Arguments...)) {
  return +[](Arguments...) {};
}

template <DeviceType stands_for>
const Backend& backend_for() {
  static const Kernels& real = kernels(Device{stands_for, 0});
  static const Kernels kernels{
#define KERNEL(name, arguments) nothing(&cpu::name),
#define KERNEL_SIZE(name, arguments) real.name,
#include "core/device/kernels.def"
#undef KERNEL
#undef KERNEL_SIZE
  };
  using Own = Counted<stands_for>;
  static const Backend backend{.name = [] { return "meta"; },
                               .allocate = allocate<stands_for>,
                               .release = release<stands_for>,
                               .copy_from_host = copy_from_host<stands_for>,
                               .copy_to_host = copy_to_host,
                               .synchronize = [] {},
                               .can_capture =
                                   [] {
                                     return tally::backend(Device{stands_for, 0}).can_capture();
                                   },
                               .begin_capture = [] { capturing = std::make_unique<CapturedWork>(); },
                               .end_capture = []() -> void* { return capturing.release(); },
                               .launch = [](void*) {},
                               .graph_size = [](const void*) { return GraphSize{}; },
                               .destroy = destroy<stands_for>,
                               .set_mark = []() -> void* { return nullptr; },
                               .time_between = [](void*, void*) { return 0.0; },
                               .drop_mark = [](void*) {},
                               .counters =
                                   [] {
                                     const std::lock_guard lock(Own::mutex);
                                     return Own::counters;
                                   },
                               .reset_peak =
                                   [] {
                                     const std::lock_guard lock(Own::mutex);
                                     Own::counters.peak_bytes = Own::counters.live_bytes;
                                   },
                               .available = [] { return static_cast<double>(most_bytes); },
                               .gradient_reducer = make_counting_reducer,
                               .kernels = kernels};
  return backend;
}

}  // namespace

Uncounted::Uncounted() : before_(std::exchange(counts, false)) {}
Uncounted::~Uncounted() { counts = before_; }

const Backend& backend(DeviceType stands_for) {
  switch (stands_for) {
    case DeviceType::cuda: return backend_for<DeviceType::cuda>();
    case DeviceType::cuda_host: return backend_for<DeviceType::cuda_host>();
    default: return backend_for<DeviceType::cpu>();
  }
}

}  // namespace tally::meta
