// Work of a device that is captured once and run as often as wanted (CUDA graphs): what starts hundreds of small
// kernels then costs one start.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/device.hpp"
#include "core/error.hpp"

namespace tally {

// Work that is being captured asked for numbers that are not computed yet.
class ReadsBack : public Error {
 public:
  using Error::Error;
};

// For backends, where a capture would have to read from its device: throws what the capture ends with as ReadsBack,
// also where it is caught or given another type on its way.
[[noreturn]] void refuse_read_back();

class DeviceGraph {
 public:
  // Whether the device can do it now. The CPU cannot and need not: it calls its kernels at once. CUDA devices cannot
  // with TALLY_CUDA_SYNC=1, which waits after every kernel.
  static bool available(Device device);

  // Calls work() once on the device's stream without running any of it. The graph keeps addresses and the values of
  // arguments: tensors it reads and writes must live as long as it does, what changes from run to run is read from
  // tensors; numbers that work() copies from the host are copied again at every run, as they were. Tensors that are
  // made in work() have to be gone at its end, tensors from before must not go in it. Throws Error where the device has
  // no graphs, ReadsBack where work() reads numbers back, and what work() throws.
  static DeviceGraph capture(Device device, const std::function<void()>& work);

  DeviceGraph(DeviceGraph&& other) noexcept;
  DeviceGraph& operator=(DeviceGraph&& other) noexcept;
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;
  ~DeviceGraph();

  // Runs the work, after all that was started before.
  void launch() const;

 private:
  DeviceGraph(Device device, void* graph) : device_(device), graph_(graph) {}

  Device device_;
  void* graph_;  // the backend's; null after a move
};

// Work that is done again and again with other numbers in the same tensors: the first time it is called, which also
// makes what is made only once, the second time captured, and from then on launched. On devices without graphs, and
// where it reads numbers back, it is called every time.
class RepeatedWork {
 public:
  void operator()(Device device, const std::function<void()>& work);
  // Why it is not captured; empty unless it reads numbers back.
  const std::string& refusal() const { return refusal_; }
  // Begins anew: other tensors, or something that a graph cannot do was switched on.
  void forget() { *this = {}; }

 private:
  bool called_ = false;
  std::string refusal_;
  std::optional<DeviceGraph> graph_;
};

}  // namespace tally
