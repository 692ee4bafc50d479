// The functions of core/device/backend.hpp for CUDA.
#include "core/device/backend.hpp"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "core/device/graph.hpp"
#include "core/error.hpp"
#include "cuda/distributed/gradient_reducer.hpp"
#include "cuda/runtime/allocator.hpp"
#include "cuda/runtime/check.hpp"
#include "cuda/runtime/context.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {
namespace {

// A captured graph, and its copies of host data: they are constant, like the arguments of its kernels.
struct CapturedWork {
  cudaGraphExec_t executable{};
  struct Constant {
    void* block;
    std::size_t bytes;
  };
  int index = context().index;
  std::vector<Constant> constants;
  CapturedMemory memory;
  ~CapturedWork() {
    for (const Constant& constant : constants) release(constant.block, constant.bytes, index);
  }
};

thread_local std::unique_ptr<CapturedWork> capturing;

// Within its scope this thread may make calls that a capture forbids. The mode is restored even after an error.
class BesideTheCapture {
 public:
  BesideTheCapture() { CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~BesideTheCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  BesideTheCapture(const BesideTheCapture&) = delete;
  BesideTheCapture& operator=(const BesideTheCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// A copy on the device, made before any captured work runs: a graph would read the host's memory again at each launch,
// when it may be gone.
const void* constant_of(const void* source, std::size_t bytes) {
  const cudaStream_t stream = context().uploads;
  const BesideTheCapture beside;
  void* const constant = allocate_beside(bytes);
  capturing->constants.push_back({constant, bytes});
  CUDA_CHECK(cudaMemcpyAsync(constant, source, bytes, cudaMemcpyHostToDevice, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
  return constant;
}

// Waits, because the caller may change its memory as soon as this returns.
void copy_from_host(void* target, const void* source, std::size_t bytes) {
  const cudaStream_t stream = context().stream;
  if (capturing != nullptr) {
    CUDA_CHECK(cudaMemcpyAsync(target, constant_of(source, bytes), bytes, cudaMemcpyDeviceToDevice, stream));
    return;
  }
  CUDA_CHECK(cudaMemcpyAsync(target, source, bytes, cudaMemcpyHostToDevice, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
}

void copy_to_host(void* target, const void* source, std::size_t bytes) {
  if (capturing != nullptr) refuse_read_back();
  const cudaStream_t stream = context().stream;
  CUDA_CHECK(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToHost, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
}

void synchronize() { CUDA_CHECK(cudaStreamSynchronize(context().stream)); }

// Captures only this thread's work: other threads may continue to allocate.
void begin_capture() {
  CUDA_CHECK(cudaStreamBeginCapture(context().stream, cudaStreamCaptureModeThreadLocal));
  capturing = std::make_unique<CapturedWork>();
  account_to(&capturing->memory);
}

void* end_capture() {
  std::unique_ptr<CapturedWork> result = std::move(capturing);
  account_to(nullptr);
  const CapturedMemory& memory = result->memory;
  cudaGraph_t graph{};
  const cudaError_t ended = cudaStreamEndCapture(context().stream, &graph);
  for (void* const block : memory.foreign) CUDA_CHECK(cudaFreeAsync(block, context().stream));
  if (ended != cudaSuccess) abandon(memory);
  check_call(ended, "cudaStreamEndCapture(stream, &graph)", __FILE__, __LINE__);
  if (!memory.own.empty() || !memory.foreign.empty()) {
    abandon(memory);
    CUDA_CHECK(cudaGraphDestroy(graph));
    check(memory.foreign.empty(), "graph", "a tensor from before was freed in work that is being captured");
    fail("graph",
         "{} of the tensors made in work that is being captured are still there at its end, of {} bytes the first; "
         "what outlives the work has to be made before",
         memory.own.size(), memory.own.begin()->second);
  }
  const cudaError_t instantiated = cudaGraphInstantiate(&result->executable, graph, 0);
  CUDA_CHECK(cudaGraphDestroy(graph));
  check_call(instantiated, "cudaGraphInstantiate(&executable, graph, 0)", __FILE__, __LINE__);
  return result.release();
}

void launch_graph(void* graph) {
  const Context& c = context();
  const cudaGraphExec_t executable = static_cast<CapturedWork*>(graph)->executable;
  cudaError_t error = cudaGraphLaunch(executable, c.stream);
  if (error == cudaErrorMemoryAllocation) {
    // The pool keeps memory that was freed outside of graphs: release it and try again.
    cudaGetLastError();
    cudaMemPool_t pool{};
    CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, c.index));
    CUDA_CHECK(cudaStreamSynchronize(c.stream));
    CUDA_CHECK(cudaMemPoolTrimTo(pool, 0));
    error = cudaGraphLaunch(executable, c.stream);
  }
  check_call(error, "cudaGraphLaunch(executable, stream)", __FILE__, __LINE__);
}

// If an earlier kernel failed, the next check reports it.
void destroy_graph(void* graph) {
  const std::unique_ptr<CapturedWork> owned(static_cast<CapturedWork*>(graph));
  cudaStreamSynchronize(context().stream);  // it may be running
  cudaGraphExecDestroy(owned->executable);
  cudaDeviceGraphMemTrim(context().index);  // graphs have a separate pool, which would keep the memory
}

void* set_mark() {
  cudaEvent_t event{};
  CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDefault));
  CUDA_CHECK(cudaEventRecord(event, context().stream));
  return event;
}

double time_between(void* first, void* last) {
  float milliseconds = 0;
  CUDA_CHECK(cudaEventSynchronize(static_cast<cudaEvent_t>(last)));
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(first), static_cast<cudaEvent_t>(last)));
  constexpr double microseconds = 1000;
  return microseconds * static_cast<double>(milliseconds);
}

}  // namespace

const Backend& backend(int index) {
  static const Kernels kernels{
#define KERNEL(name, arguments) &name,
#define KERNEL_SIZE(name, arguments) &name,
#include "core/device/kernels.def"
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
                               .set_mark = set_mark,
                               .time_between = time_between,
                               .drop_mark = [](void* mark) { cudaEventDestroy(static_cast<cudaEvent_t>(mark)); },
                               .counters = counters,
                               .reset_peak = reset_peak,
                               .available = available,
                               .gradient_reducer = make_gradient_reducer,
                               .kernels = kernels};
  use_device(index);
  return backend;
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
