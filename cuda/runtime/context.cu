#include "cuda/runtime/context.hpp"

#include <deque>
#include <memory>
#include <mutex>

#include "core/error.hpp"
#include "cuda/runtime/check.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {
namespace {

struct Contexts {
  std::mutex mutex;
  std::deque<std::unique_ptr<const Context>> all;  // by index; null before the first use
};

// Never destroyed: the driver may be gone earlier, and tensors with static lifetime are freed late.
Contexts& contexts() {
  static Contexts* const instance = [] {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    check(error == cudaSuccess && count > 0, "cuda",
          "this machine has no CUDA device that can be used{}{}; use cpu, or cuda-host to run the CUDA kernels on the "
          "CPU",
          error == cudaSuccess ? "" : ": ", error == cudaSuccess ? "" : cudaGetErrorString(error));
    auto* const result = new Contexts;
    result->all.resize(static_cast<std::size_t>(count));
    return result;
  }();
  return *instance;
}

std::unique_ptr<const Context> make_context(int index) {
  Context c{};
  c.index = index;
  CUDA_CHECK(cudaGetDeviceProperties(&c.properties, index));
  CUDA_CHECK(cudaStreamCreateWithFlags(&c.stream, cudaStreamNonBlocking));
  CUDA_CHECK(cudaStreamCreateWithFlags(&c.uploads, cudaStreamNonBlocking));
  // The process keeps freed memory: asking the system again costs more than a small kernel.
  cudaMemPool_t pool{};
  CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, index));
  std::uint64_t keep = UINT64_MAX;
  CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  CUBLAS_CHECK(cublasCreate(&c.blas));
  CUBLAS_CHECK(cublasSetStream(c.blas, c.stream));
  // cuBLAS' own workspace could not be used inside a captured graph, and would make bits depend on other streams.
  c.workspace_bytes = std::size_t{c.properties.major >= 9 ? 32u : 4u} << 20;
  CUDA_CHECK(cudaMallocAsync(&c.workspace, c.workspace_bytes, c.stream));
  CUBLAS_CHECK(cublasSetWorkspace(c.blas, c.workspace, c.workspace_bytes));
  return std::make_unique<const Context>(c);
}

thread_local const Context* current = nullptr;

}  // namespace

const Context& use_device(int index) {
  if (current != nullptr && current->index == index) return *current;
  Contexts& c = contexts();
  const int count = static_cast<int>(c.all.size());
  check(index < count, "cuda", "there is no device {}: this machine has {}{}, counted from 0", index, count,
        count == 1 ? " device" : " devices");
  CUDA_CHECK(cudaSetDevice(index));
  const std::lock_guard lock(c.mutex);
  auto& own = c.all[static_cast<std::size_t>(index)];
  if (own == nullptr) own = make_context(index);
  current = own.get();
  return *current;
}

const Context& context() { return current != nullptr ? *current : use_device(0); }

std::size_t shared_memory_limit() {
  int bytes = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, context().index));
  return static_cast<std::size_t>(bytes);
}

const Context& context_of(int index) {
  Contexts& c = contexts();
  const std::lock_guard lock(c.mutex);
  return *c.all[static_cast<std::size_t>(index)];
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
