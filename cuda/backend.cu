// What core/backend.hpp asks of a device.
#include "core/backend.hpp"

#include <cstddef>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "cuda/allocator.hpp"
#include "cuda/check.hpp"
#include "cuda/context.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {
namespace {

// A captured graph, and what was copied to the device within it: as constant as the arguments of its kernels.
struct CapturedWork {
  cudaGraphExec_t executable{};
  std::deque<std::vector<std::byte>> constants;
  CapturedMemory memory;
};

thread_local std::unique_ptr<CapturedWork> capturing;

// Waits: the caller's memory may be changed as soon as it returns.
void copy_from_host(void* target, const void* source, std::size_t bytes) {
  const cudaStream_t stream = context().stream;
  if (capturing != nullptr) {
    const auto* const begin = static_cast<const std::byte*>(source);
    source = capturing->constants.emplace_back(begin, begin + bytes).data();
  }
  CUDA_CHECK(cudaMemcpyAsync(target, source, bytes, cudaMemcpyHostToDevice, stream));
  if (capturing == nullptr) CUDA_CHECK(cudaStreamSynchronize(stream));
}

void copy_to_host(void* target, const void* source, std::size_t bytes) {
  check(capturing == nullptr, "graph", "numbers were read back from the device in work that is being captured");
  const cudaStream_t stream = context().stream;
  CUDA_CHECK(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToHost, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
}

void synchronize() { CUDA_CHECK(cudaStreamSynchronize(context().stream)); }

// Only this thread's work is kept: other threads may go on allocating.
void begin_capture() {
  CUDA_CHECK(cudaStreamBeginCapture(context().stream, cudaStreamCaptureModeThreadLocal));
  capturing = std::make_unique<CapturedWork>();
  account_to(&capturing->memory);
}

void* end_capture() {
  std::unique_ptr<CapturedWork> result = std::move(capturing);
  account_to(nullptr);
  cudaGraph_t graph{};
  const cudaError_t ended = cudaStreamEndCapture(context().stream, &graph);
  for (void* const block : result->memory.foreign) CUDA_CHECK(cudaFreeAsync(block, context().stream));
  check_call(ended, "cudaStreamEndCapture(stream, &graph)", __FILE__, __LINE__);
  if (!result->memory.foreign.empty()) {
    CUDA_CHECK(cudaGraphDestroy(graph));
    fail("graph", "a tensor from before was freed in work that is being captured");
  }
  const cudaError_t instantiated = cudaGraphInstantiate(&result->executable, graph, 0);
  CUDA_CHECK(cudaGraphDestroy(graph));
  check_call(instantiated, "cudaGraphInstantiate(&executable, graph, 0)", __FILE__, __LINE__);
  // The graph has memory of its own. What the same work used before it was captured goes back to the system.
  cudaMemPool_t pool{};
  CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, context().index));
  CUDA_CHECK(cudaStreamSynchronize(context().stream));
  CUDA_CHECK(cudaMemPoolTrimTo(pool, 0));
  return result.release();
}

void launch_graph(void* graph) {
  CUDA_CHECK(cudaGraphLaunch(static_cast<CapturedWork*>(graph)->executable, context().stream));
}

// A failure here is that of an earlier kernel, which the next check tells.
void destroy_graph(void* graph) {
  const std::unique_ptr<CapturedWork> owned(static_cast<CapturedWork*>(graph));
  cudaStreamSynchronize(context().stream);  // it may be running, and reads its constants then
  cudaGraphExecDestroy(owned->executable);
  cudaDeviceGraphMemTrim(context().index);  // graphs have a pool of their own, which would keep its memory
}

}  // namespace

const Backend& backend(int index) {
  static const Kernels kernels{
#define KERNEL(name, arguments) &name,
#define KERNEL_SIZE(name, arguments) &name,
#include "core/kernels.def"
#undef KERNEL
#undef KERNEL_SIZE
  };
  static const Backend backend{.name = [] { return static_cast<const char*>(context().properties.name); },
                               .allocate = allocate,
                               .release = release,
                               .copy_from_host = copy_from_host,
                               .copy_to_host = copy_to_host,
                               .synchronize = synchronize,
                               .can_capture = [] { return !waits_after_launch(); },
                               .begin_capture = begin_capture,
                               .end_capture = end_capture,
                               .launch = launch_graph,
                               .destroy = destroy_graph,
                               .counters = counters,
                               .reset_peak = reset_peak,
                               .available = available,
                               .kernels = kernels};
  use_device(index);
  return backend;
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
