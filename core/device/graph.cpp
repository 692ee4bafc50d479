#include "core/device/graph.hpp"

#include <exception>
#include <utility>

#include "core/device/backend.hpp"
#include "core/error.hpp"

namespace tally {
namespace {

thread_local bool read_back = false;  // in this thread's capture

}  // namespace

void refuse_read_back() {
  read_back = true;
  fail("graph", "numbers were read back from the device in work that is being captured");
}

bool DeviceGraph::available(Device device) { return backend(device).can_capture(); }

DeviceGraph DeviceGraph::capture(Device device, const std::function<void()>& work) {
  check(available(device), "graph", "work on {} cannot be captured", device);
  const Backend& on = backend(device);
  read_back = false;
  on.begin_capture();
  try {
    work();
    // work() caught the refusal and continued without the numbers.
    if (read_back) refuse_read_back();
  } catch (const std::exception& error) {
    try {
      on.destroy(on.end_capture());
    } catch (const Error&) {
      // The error of work() has invalidated the capture, and is the one to report.
    }
    if (read_back) throw ReadsBack(error.what());
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

GraphSize DeviceGraph::size() const { return backend(device_).graph_size(graph_); }

void GraphedStep::operator()(Device device, const std::function<void()>& work) {
  const bool captures = called_ && refusal_.empty() && DeviceGraph::available(device);
  if (captures && !graph_.has_value()) {
    try {
      graph_ = DeviceGraph::capture(device, work);
    } catch (const ReadsBack& error) {
      refusal_ = error.what();
    }
  }
  if (graph_.has_value() && captures) {
    graph_->launch();
  } else {
    work();
    called_ = true;
  }
}

}  // namespace tally
