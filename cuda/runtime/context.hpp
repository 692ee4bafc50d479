// The state of the backend for each device: one stream for its work, and a cuBLAS handle on that stream.
#pragma once

#include <cstddef>

#include "cuda/runtime/runtime.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

struct Context {
  int index;
  cudaStream_t stream;
  cudaStream_t uploads;  // second stream, for copies that must not wait until captured work is launched
  cublasHandle_t blas;
  void* workspace;  // of cuBLAS and cublasLt
  std::size_t workspace_bytes;
  cudaDeviceProp properties;
};

// Makes a device this thread's current one. Throws Error if the machine has no such device.
const Context& use_device(int index);

// The context of the current device.
const Context& context();
// Bytes of shared memory that a block can have on this device: 64 KiB on the oldest, 99 on most cards, up to 227.
std::size_t shared_memory_limit();
// The context of a device that has been used.
const Context& context_of(int index);

}  // namespace tally::TALLY_CUDA_NAMESPACE
