// The functions of core/device/backend.hpp for CUDA.
#include "core/device/backend.hpp"

#include <cstddef>
#include <memory>
#include <type_traits>
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
  GraphSize size;
  ~CapturedWork() {
    for (const Constant& constant : constants) release(constant.block, constant.bytes, index);
  }
};

thread_local std::unique_ptr<CapturedWork> capturing;

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
  const cudaStream_t stream = context().stream;
  CUDA_CHECK(cudaStreamSynchronize(stream));  // then the work can have memory that earlier work has freed
  CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  capturing = std::make_unique<CapturedWork>();
  allocate_captured(&capturing->memory);
}

void count_nodes(cudaGraph_t graph, GraphSize& size) {
  std::size_t count = 0;
  CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    CUDA_CHECK(cudaGraphNodeGetType(node, &type));
    ++(type == cudaGraphNodeTypeMemAlloc || type == cudaGraphNodeTypeMemFree ? size.allocations : size.kernels);
  }
}

void* end_capture() {
  std::unique_ptr<CapturedWork> result = std::move(capturing);
  allocate_captured(nullptr);
  cudaGraph_t graph{};
  CUDA_CHECK(cudaStreamEndCapture(context().stream, &graph));
  const auto destroy = [](cudaGraph_t owned) { cudaGraphDestroy(owned); };
  const std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, decltype(destroy)> owner(graph, destroy);
  const CapturedMemory& memory = result->memory;
  check(memory.foreign.empty(), "graph", "a tensor from before was freed in work that is being captured");
  if (!memory.own.empty()) {
    fail("graph",
         "{} of the tensors made in work that is being captured are still there at its end, of {} bytes the first; "
         "what outlives the work has to be made before",
         memory.own.size(), memory.own.begin()->second);
  }
  count_nodes(graph, result->size);
  result->size.bytes = memory.bytes();
  CUDA_CHECK(cudaGraphInstantiate(&result->executable, graph, 0));
  return result.release();
}

void launch_graph(void* graph) {
  const CapturedWork& work = *static_cast<CapturedWork*>(graph);
  work.memory.check_free();
  CUDA_CHECK(cudaGraphLaunch(work.executable, context().stream));
}

GraphSize graph_size(const void* graph) { return static_cast<const CapturedWork*>(graph)->size; }

// If an earlier kernel failed, the next check reports it.
void destroy_graph(void* graph) {
  const std::unique_ptr<CapturedWork> owned(static_cast<CapturedWork*>(graph));
  cudaStreamSynchronize(context().stream);  // it may be running
  cudaGraphExecDestroy(owned->executable);
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
                               .graph_size = graph_size,
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
