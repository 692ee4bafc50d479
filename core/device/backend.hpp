// The interface of a device type: memory, copies, and the table of kernels.
#pragma once

#include <cstddef>
#include <memory>

#include "core/device/allocator.hpp"
#include "core/device/device.hpp"
#include "core/device/kernels.hpp"

namespace tally {

class GradientReducer;
class ProcessGroup;
struct GraphSize;

struct Backend {
  // The name of the device as its driver reports it; empty for the CPU. Lives as long as the program.
  const char* (*name)();
  // Uninitialised memory aligned to 64 bytes, null for 0 bytes. Throws Error when the device has none left.
  void* (*allocate)(std::size_t bytes);
  // Returns a block to the allocator, after all work that was started before has run. Never throws.
  void (*release)(void* block, std::size_t bytes, int index);
  // Between host memory and the device; on return host memory may be used again.
  void (*copy_from_host)(void* target, const void* source, std::size_t bytes);
  void (*copy_to_host)(void* target, const void* source, std::size_t bytes);
  // Waits until all started work has run; throws the first error that occurred in it.
  void (*synchronize)();
  // Work submitted between begin_capture and end_capture is recorded instead of run. launch runs the recorded graph any
  // number of times, and destroy frees it. Null on devices without graphs. See core/device/graph.hpp.
  bool (*can_capture)();
  void (*begin_capture)() = nullptr;
  void* (*end_capture)() = nullptr;
  void (*launch)(void* graph) = nullptr;
  GraphSize (*graph_size)(const void* graph) = nullptr;
  void (*destroy)(void* graph) = nullptr;
  // Timing marks in the stream of work. The time between two marks is in microseconds; asking for it waits until the
  // device has passed both.
  void* (*set_mark)();
  double (*time_between)(void* first, void* last);
  void (*drop_mark)(void* mark);
  MemoryCounters (*counters)();
  void (*reset_peak)();
  // Bytes that allocate can still give: free device memory, released blocks that are cached, and the memory of graphs
  // between their runs.
  double (*available)();
  // core/distributed/gradient_reducer.hpp
  std::unique_ptr<GradientReducer> (*gradient_reducer)(const ProcessGroup& ranks);
  const Kernels& kernels;
};

// The backend of a device, which becomes this thread's current device of its type: calls through the result act on it.
// Throws Error if the backend is not built in or the machine has no such device.
const Backend& backend(Device device);

// Each is defined by its backend; index: number of the device within its type.
namespace cuda {
const Backend& backend(int index);
}
namespace cuda_host {
const Backend& backend(int index);
}

namespace meta {

const Backend& backend(DeviceType stands_for);

// While it exists, tensors of this thread on the counting device are not counted. They must not outlive it. For work on
// the counting device that is no part of a run.
class Uncounted {
 public:
  Uncounted();
  ~Uncounted();
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;

 private:
  bool before_;
};

}  // namespace meta

MemoryCounters memory_counters(Device device);
void reset_peak_memory(Device device);
double available_memory(Device device);

// How f32 matmuls read their operands (core/precision.md); the default is f32. Sums are always f32. The CPU does not
// support tf32 and computes in f32 instead.
enum class MatmulPrecision : std::uint8_t { f32, tf32, bf16 };
MatmulPrecision matmul_precision();
void set_matmul_precision(MatmulPrecision precision);

// Waits until the device has finished all its work; returns at once on the CPU.
void synchronize(Device device);

}  // namespace tally
