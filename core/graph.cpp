#include "core/graph.hpp"

#include <utility>

#include "core/backend.hpp"
#include "core/error.hpp"

namespace tally {

bool DeviceGraph::available(Device device) { return backend(device).can_capture(); }

DeviceGraph DeviceGraph::capture(Device device, const std::function<void()>& work) {
  check(available(device), "graph", "work on ", device, " cannot be captured");
  const Backend& on = backend(device);
  on.begin_capture();
  try {
    work();
  } catch (...) {
    try {
      on.destroy(on.end_capture());
    } catch (const Error&) {
      // What made work() throw has made the capture invalid, and is what the caller hears of.
    }
    throw;
  }
  return {device, on.end_capture()};
}

DeviceGraph::DeviceGraph(DeviceGraph&& other) noexcept
    : device_(other.device_), graph_(std::exchange(other.graph_, nullptr)) {}

DeviceGraph& DeviceGraph::operator=(DeviceGraph&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(graph_, other.graph_);
  return *this;
}

DeviceGraph::~DeviceGraph() {
  if (graph_ != nullptr) backend(device_).destroy(graph_);
}

void DeviceGraph::launch() const { backend(device_).launch(graph_); }

void RepeatedWork::operator()(Device device, const std::function<void()>& work) {
  if (!called_ || !DeviceGraph::available(device)) {
    work();
    called_ = true;
    return;
  }
  if (!graph_.has_value()) graph_ = DeviceGraph::capture(device, work);
  graph_->launch();
}

}  // namespace tally
