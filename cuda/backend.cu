// What core/backend.hpp asks of a device.
#include "core/backend.hpp"

#include "cuda/allocator.hpp"
#include "cuda/check.hpp"
#include "cuda/context.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {
namespace {

// Both wait: the caller's memory may be changed or read as soon as they return.
void copy_from_host(void* target, const void* source, std::size_t bytes) {
  const cudaStream_t stream = context().stream;
  CUDA_CHECK(cudaMemcpyAsync(target, source, bytes, cudaMemcpyHostToDevice, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
}

void copy_to_host(void* target, const void* source, std::size_t bytes) {
  const cudaStream_t stream = context().stream;
  CUDA_CHECK(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToHost, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
}

void synchronize() { CUDA_CHECK(cudaStreamSynchronize(context().stream)); }

}  // namespace

const Backend& backend(int index) {
  static const Kernels kernels{
#define KERNEL(name, arguments) &name,
#define KERNEL_SIZE(name, arguments) &name,
#include "core/kernels.def"
#undef KERNEL
#undef KERNEL_SIZE
  };
  static const Backend backend{.allocate = allocate,
                               .release = release,
                               .copy_from_host = copy_from_host,
                               .copy_to_host = copy_to_host,
                               .synchronize = synchronize,
                               .counters = counters,
                               .reset_peak = reset_peak,
                               .kernels = kernels};
  use_device(index);
  return backend;
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
