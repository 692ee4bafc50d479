// Device memory for the time of one call: it goes back in the order of the stream, after the kernels that use it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/allocator.hpp"
#include "cuda/check.hpp"
#include "cuda/context.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

template <class T>
class Scratch {
 public:
  explicit Scratch(std::int64_t count) : bytes_(static_cast<std::size_t>(count) * sizeof(T)), data_(allocate(bytes_)) {}
  ~Scratch() { release(data_, bytes_, context().index); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* data() const { return static_cast<T*>(data_); }
  void set_zero() {
    if (bytes_ > 0) CUDA_CHECK(cudaMemsetAsync(data_, 0, bytes_, context().stream));
  }

 private:
  std::size_t bytes_;
  void* data_;
};

}  // namespace tally::TALLY_CUDA_NAMESPACE
