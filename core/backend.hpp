// What a kind of device is to the rest of the library: memory, copies, and the table of kernels.
#pragma once

#include <cstddef>
#include <memory>

#include "core/allocator.hpp"
#include "core/device.hpp"
#include "core/kernels.hpp"

namespace tally {

class Exchange;
class Ranks;

struct Backend {
  // What the device calls itself; empty for the CPU. Lives as long as the program.
  const char* (*name)();
  // Uninitialised memory aligned to 64 bytes, null for 0 bytes. Throws Error when the device has none left.
  void* (*allocate)(std::size_t bytes);
  // Takes back what allocate gave, once all that was started before has run. Never throws.
  void (*release)(void* block, std::size_t bytes, int index);
  // Between host memory and the device; on return host memory may be used again.
  void (*copy_from_host)(void* target, const void* source, std::size_t bytes);
  void (*copy_to_host)(void* target, const void* source, std::size_t bytes);
  // Waits until all that was started has run; throws what went wrong in it.
  void (*synchronize)();
  // Work put in between the first two is kept instead of run; what end_capture gives is run by launch, as often as
  // wanted, and destroyed; null on devices that never can. See core/graph.hpp.
  bool (*can_capture)();
  void (*begin_capture)();
  void* (*end_capture)();
  void (*launch)(void* graph);
  void (*destroy)(void* graph);
  // Marks between what was started before and after, and the microseconds from when the device came by one of them
  // until it came by another, for which this waits.
  void* (*set_mark)();
  double (*time_between)(void* first, void* last);
  void (*drop_mark)(void* mark);
  MemoryCounters (*counters)();
  void (*reset_peak)();
  // Bytes that allocate can still give: what the device has left, and what was released and is kept for reuse.
  double (*available)();
  // core/exchange.hpp
  std::unique_ptr<Exchange> (*exchange)(const Ranks& ranks);
  const Kernels& kernels;
};

// That of a device, which becomes this thread's current one of its kind: calls through the result act on it. Throws
// Error when the backend is not built in or the machine has no such device.
const Backend& backend(Device device);

// Each defined by its backend; index: which device of that kind.
namespace cuda {
const Backend& backend(int index);
}
namespace cuda_host {
const Backend& backend(int index);
}

namespace meta {
const Backend& backend(DeviceType stands_for);
}  // namespace meta

MemoryCounters memory_counters(Device device);
void reset_peak_memory(Device device);
double available_memory(Device device);

// How matrix products of f32 may read their operands (core/precision.md); f32 unless set. Sums are f32 always. The CPU
// knows no tf32, and computes in f32 then.
enum class ProductPrecision : std::uint8_t { f32, tf32, bf16 };
ProductPrecision product_precision();
void set_product_precision(ProductPrecision precision);

// Waits until the device has done all that was asked of it; nothing to wait for on the CPU.
void synchronize(Device device);

}  // namespace tally
