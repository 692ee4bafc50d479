// Several small tensors in one block of device memory and its copy on the host, so that they move in one transfer: each
// transfer that waits for the device takes ten microseconds or more.
#pragma once

#include <memory>
#include <vector>

#include "core/tensor.hpp"

namespace tally {

class StagingBuffer {
 public:
  struct Part {
    Shape shape;
    DType dtype;
  };
  StagingBuffer() = default;
  // All 0.
  StagingBuffer(const std::vector<Part>& parts, Device device);

  bool defined() const { return device_storage_ != nullptr; }
  // On the device. The tensors share memory, and so they share the version that in-place changes raise.
  Tensor& on_device(std::size_t part) { return on_device_[part]; }
  // On the host, to be written before send() and read after fetch(). On a CPU it is the same memory.
  Tensor& on_host(std::size_t part) { return on_host_[part]; }

  void send();   // from the host to the device
  void fetch();  // from the device to the host, after all work started before

 private:
  std::shared_ptr<Storage> device_storage_, host_storage_;
  std::vector<Tensor> on_device_, on_host_;
};

}  // namespace tally
