#include "cuda/host/runtime_api.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

#include "core/allocator.hpp"
#include "core/random.hpp"
#include "cuda/host/block.hpp"
#include "cuda/host/memory.hpp"
#include "cuda/host/stream.hpp"

namespace tally::cuda_host {
namespace {

struct Streams {
  std::recursive_mutex mutex;
  std::vector<Stream*> all;
  std::vector<Graph*> graphs;
  Rng rng{{0, stream_of("cuda-host streams"), 0}};
};

Streams& streams() {
  static Streams* const instance = new Streams;
  return *instance;
}

thread_local cudaError_t last_error = cudaSuccess;

bool known(const Streams& s, const Stream* stream) {
  return std::find(s.all.begin(), s.all.end(), stream) != s.all.end();
}

bool can_run(const Stream& stream) {
  if (stream.items.empty()) return false;
  const Stream::Item& first = stream.items.front();
  return first.event == nullptr || first.event->reached >= first.awaited;
}

// Runs the next item of some stream; false when none can run.
bool run_one(Streams& s) {
  std::vector<Stream*> candidates;
  std::copy_if(s.all.begin(), s.all.end(), std::back_inserter(candidates),
               [](const Stream* stream) { return can_run(*stream); });
  if (candidates.empty()) return false;
  Stream& stream = *candidates[s.rng.below(static_cast<std::uint32_t>(candidates.size()))];
  const Stream::Item item = std::move(stream.items.front());
  stream.items.pop_front();
  item.work();
  return true;
}

void put(Streams& s, Stream& stream, Stream::Item item) {
  if (stream.capture != nullptr) {
    stream.capture->work.push_back(std::move(item.work));
    return;
  }
  stream.items.push_back(std::move(item));
  const bool delay = settings().delay_streams;
  while ((!delay || s.rng.chance(0.3)) && run_one(s)) {
  }
}

bool holds(const std::vector<void*>& blocks, const void* block) {
  return std::find(blocks.begin(), blocks.end(), block) != blocks.end();
}

// What a launch has taken stays, as it does in CUDA, until it is freed.
void release(Graph* graph) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  if (--graph->references > 0) return;
  for (void* const block : graph->freed) free_device_memory(block);
  for (void* const block : graph->taken) {
    if (!holds(graph->held, block)) free_device_memory(block);
  }
  std::erase(s.graphs, graph);
  delete graph;
}

// Frees a block of a graph outside of it: only what a launch has taken can be.
cudaError_t free_of_graph(Graph& graph, void* block) {
  return std::erase(graph.held, block) > 0 ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace

namespace detail {

cudaError_t result(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

void enqueue(cudaStream_t stream, std::function<void()> work) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  put(s, *stream, {std::move(work)});
}

}  // namespace detail

using detail::enqueue;
using detail::result;

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
  }
  return "unrecognized error code";
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int index) { return result(index == 0 ? cudaSuccess : cudaErrorInvalidDevice); }

// Few processors, so that grids that are made to fill them stay small here.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  if (index != 0) return result(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "CPU");
  properties->major = 8;
  properties->multiProcessorCount = 2;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int index) {
  *value = static_cast<int>(max_shared_bytes(settings()));
  return result(index == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceSynchronize() {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  while (run_one(s)) {
  }
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  *stream = s.all.emplace_back(new Stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  if (!known(s, stream)) return result(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) return result(cudaErrorStreamCaptureUnsupported);
  while (!stream->items.empty() && run_one(s)) {
  }
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const cudaError_t error = cudaStreamSynchronize(stream);
  if (error != cudaSuccess) return error;
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  std::erase(s.all, stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  if (!known(s, stream) || event == nullptr) return result(cudaErrorInvalidResourceHandle);
  put(s, *stream, {[] {}, event, event->recorded});
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new Event;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const cudaError_t error = cudaEventSynchronize(event);
  delete event;
  return error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  if (!known(s, stream) || event == nullptr) return result(cudaErrorInvalidResourceHandle);
  const std::uint64_t time = ++event->recorded;
  put(s, *stream, {[event, time] { event->reached = time; }});
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  if (event == nullptr) return result(cudaErrorInvalidResourceHandle);
  while (event->reached < event->recorded && run_one(s)) {
  }
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  if (event == nullptr) return result(cudaErrorInvalidResourceHandle);
  return event->reached < event->recorded ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaMallocAsync(void** block, std::size_t bytes, cudaStream_t stream) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  if (!known(s, stream)) return result(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return result(cudaErrorInvalidValue);
  *block = take_device_memory(bytes);
  if (*block == nullptr) return result(cudaErrorMemoryAllocation);
  if (stream->capture == nullptr) return cudaSuccess;
  stream->capture->taken.push_back(*block);
  put(s, *stream, {[data = *block] { poison_device_memory(data); }});
  return cudaSuccess;
}

cudaError_t cudaFreeAsync(void* block, cudaStream_t stream) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  if (!known(s, stream)) return result(cudaErrorInvalidResourceHandle);
  if (!in_device_memory(block, 1)) return result(cudaErrorInvalidValue);
  if (Graph* const graph = stream->capture; graph != nullptr) {
    if (std::erase(graph->taken, block) == 0) {
      graph->invalid = true;  // CUDA allows a graph its own memory only
      return result(cudaErrorInvalidValue);
    }
    graph->freed.push_back(block);
    return cudaSuccess;
  }
  for (Graph* const graph : s.graphs) {
    if (holds(graph->taken, block)) return result(free_of_graph(*graph, block));
  }
  put(s, *stream, {[block] { free_device_memory(block); }});
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const bool to_device = kind != cudaMemcpyDeviceToHost, from_device = kind != cudaMemcpyHostToDevice;
  const bool right = (to_device ? in_device_memory(target, bytes) : in_host_memory(target, bytes)) &&
                     (from_device ? in_device_memory(source, bytes) : in_host_memory(source, bytes));
  if (!right) return result(cudaErrorInvalidValue);
  enqueue(stream, [=] {
    const DeviceAccess access;
    std::memcpy(target, source, bytes);
  });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t stream) {
  if (!in_device_memory(target, bytes)) return result(cudaErrorInvalidValue);
  enqueue(stream, [=] {
    const DeviceAccess access;
    std::memset(target, value, bytes);
  });
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  *free = static_cast<std::size_t>(std::min(available_memory(), static_cast<double>(*total)));
  return cudaSuccess;
}

// Memory is the host's to keep or give back: no pool holds any.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int index) {
  *pool = nullptr;
  return result(index == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  *static_cast<std::uint64_t*>(value) = 0;
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) { return cudaSuccess; }

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  if (!known(s, stream)) return result(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) return result(cudaErrorStreamCaptureUnsupported);
  stream->capture = s.graphs.emplace_back(new Graph);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  if (!known(s, stream) || stream->capture == nullptr) return result(cudaErrorInvalidValue);
  *graph = std::exchange(stream->capture, nullptr);
  if (!(*graph)->invalid) return cudaSuccess;
  release(std::exchange(*graph, nullptr));
  return result(cudaErrorStreamCaptureInvalidated);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  ++graph->references;
  *executable = graph;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  if (!known(s, stream)) return result(cudaErrorInvalidResourceHandle);
  if (!executable->held.empty()) return result(cudaErrorInvalidValue);
  executable->held = executable->taken;
  for (const auto& work : executable->work) put(s, *stream, {work});
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  cudaDeviceSynchronize();
  release(executable);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  cudaDeviceSynchronize();
  release(graph);
  return cudaSuccess;
}

// A graph's memory is given back with it.
cudaError_t cudaDeviceGraphMemTrim(int index) { return result(index == 0 ? cudaSuccess : cudaErrorInvalidDevice); }

}  // namespace tally::cuda_host
