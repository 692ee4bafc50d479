// Device work that is captured once and run any number of times (CUDA graphs): one launch replaces the launches of
// hundreds of small kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/device/device.hpp"
#include "core/error.hpp"

namespace tally {

// The captured work asked for numbers that are not computed yet.
class ReadsBack : public Error {
 public:
  using Error::Error;
};

// For backends: refuses a read from the device during a capture. The capture then ends with ReadsBack, even if the
// exception is caught or replaced on its way.
[[noreturn]] void refuse_read_back();

// Figures of captured work. The counting device (meta) has none of them: they are 0.
struct GraphSize {
  std::int64_t kernels = 0;      // kernels, matmuls, copies and fills
  std::int64_t allocations = 0;  // allocations and frees that the device does in each run
  std::size_t bytes = 0;         // of memory for tensors created in the work, shared with other graphs of the device
};

class DeviceGraph {
 public:
  // Whether the device supports graphs now. The CPU does not need them: it calls its kernels at once. CUDA devices do
  // not with TALLY_CUDA_SYNC=1, which waits after every kernel.
  static bool available(Device device);

  // Calls work() once on the device's stream without running any of it. The graph keeps addresses and the values of
  // arguments, so tensors that it reads and writes must live as long as the graph. Values that change from run to run
  // must be in tensors. Numbers that work() copies from the host are copied again at every run with their old values.
  // Tensors created in work() must be freed at its end; older tensors must not be freed in it. Throws Error if the
  // device has no graphs, ReadsBack if work() reads numbers back, and the errors of work().
  static DeviceGraph capture(Device device, const std::function<void()>& work);

  DeviceGraph(DeviceGraph&& other) noexcept;
  DeviceGraph& operator=(DeviceGraph&& other) noexcept;
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;
  ~DeviceGraph();

  // Runs the work, after all work that was started before.
  void launch() const;

  GraphSize size() const;

 private:
  DeviceGraph(Device device, void* graph) : device_(device), graph_(graph) {}

  Device device_;
  void* graph_;  // the backend's; null after a move
};

// Work that is repeated with other numbers in the same tensors. The first call runs it and creates everything that is
// created once, the second call captures it, and later calls launch the graph. Without graphs, or if the work reads
// numbers back, every call runs it.
class GraphedStep {
 public:
  void operator()(Device device, const std::function<void()>& work);
  // Why it is not captured; empty unless it reads numbers back.
  const std::string& refusal() const { return refusal_; }
  // Null if nothing is captured.
  const DeviceGraph* graph() const { return graph_.has_value() ? &*graph_ : nullptr; }
  // Starts over, because tensors were replaced or an option is on that a graph cannot support.
  void forget() { *this = {}; }

 private:
  bool called_ = false;
  std::string refusal_;
  std::optional<DeviceGraph> graph_;
};

}  // namespace tally
