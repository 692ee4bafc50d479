// Device memory and copies in stream order, and graphs, which have separate memory.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "core/device/allocator.hpp"
#include "cuda/emulator/memory.hpp"
#include "cuda/emulator/runtime_api.hpp"
#include "cuda/emulator/settings.hpp"
#include "cuda/emulator/stream.hpp"

namespace tally::cuda_host {

using detail::enqueue;
using detail::result;

namespace {

bool holds(const std::vector<void*>& blocks, const void* block) {
  return std::find(blocks.begin(), blocks.end(), block) != blocks.end();
}

bool fits(std::size_t bytes) {
  const std::size_t limit = settings().memory_bytes;
  return limit == 0 || bytes <= limit;
}
// Reserves bytes for allocations outside of graphs.
bool reserve(Streams& s, std::size_t bytes) {
  if (bytes <= s.pool_reserved) return true;
  if (!fits(bytes + s.graphs_reserved)) return false;
  s.pool_reserved = bytes;
  return true;
}

// Memory allocated by a launch stays until it is freed, as in CUDA.
void release(Graph* graph) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  s.run_all();
  if (--graph->references > 0) return;
  for (void* const block : graph->freed) free_device_memory(block);
  for (void* const block : graph->taken) {
    if (!holds(graph->held, block)) free_device_memory(block);
  }
  std::erase(s.graphs, graph);
  delete graph;
}

// Frees a block of a graph from outside: possible only for memory that a launch has allocated.
cudaError_t free_of_graph(Graph& graph, void* block) {
  return std::erase(graph.held, block) > 0 ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace

cudaError_t cudaMallocAsync(void** block, std::size_t bytes, cudaStream_t stream) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  if (!s.known(stream)) return result(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return result(cudaErrorInvalidValue);
  Graph* const graph = stream->capture;
  if (graph == nullptr && !reserve(s, s.pool_used + bytes)) return result(cudaErrorMemoryAllocation);
  *block = take_device_memory(bytes);
  if (*block == nullptr) return result(cudaErrorMemoryAllocation);
  if (graph == nullptr) {
    s.pool_used += bytes;
    return cudaSuccess;
  }
  graph->taken.push_back(*block);
  graph->live_bytes += bytes;
  graph->peak_bytes = std::max(graph->peak_bytes, graph->live_bytes);
  s.put(*stream, {[data = *block] { poison_device_memory(data); }});
  return cudaSuccess;
}

cudaError_t cudaFreeAsync(void* block, cudaStream_t stream) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  if (!s.known(stream)) return result(cudaErrorInvalidResourceHandle);
  if (!in_device_memory(block, 1)) return result(cudaErrorInvalidValue);
  if (Graph* const graph = stream->capture; graph != nullptr) {
    if (std::erase(graph->taken, block) == 0) {
      graph->invalid = true;  // CUDA allows a graph to free only its own memory
      return result(cudaErrorInvalidValue);
    }
    graph->freed.push_back(block);
    graph->live_bytes -= device_block_bytes(block);
    return cudaSuccess;
  }
  for (Graph* const graph : s.graphs) {
    if (holds(graph->taken, block)) return result(free_of_graph(*graph, block));
  }
  s.pool_used -= device_block_bytes(block);
  s.put(*stream, {[block] { free_device_memory(block); }});
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const bool to_device = kind != cudaMemcpyDeviceToHost, from_device = kind != cudaMemcpyHostToDevice;
  const bool right = (to_device ? in_device_memory(target, bytes) : in_host_memory(target, bytes)) &&
                     (from_device ? in_device_memory(source, bytes) : in_host_memory(source, bytes));
  if (!right) return result(cudaErrorInvalidValue);
  // Here all host memory is pageable, which a graph must not read when it is launched.
  if (stream->capture != nullptr && kind != cudaMemcpyDeviceToDevice) {
    stream->capture->invalid = true;
    return result(cudaErrorStreamCaptureUnsupported);
  }
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
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  *total = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  *free = static_cast<std::size_t>(std::min(available_memory(), static_cast<double>(*total)));
  if (const std::size_t limit = settings().memory_bytes; limit != 0) {
    *total = limit;
    *free = limit - std::min(limit, s.pool_reserved + s.graphs_reserved);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int index) {
  *pool = nullptr;
  return result(index == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute, void* value) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  const bool limited = settings().memory_bytes != 0;  // otherwise host memory, to which freed blocks return
  const std::size_t reserved = limited ? s.pool_reserved : s.pool_used;
  *static_cast<std::uint64_t*>(value) = attribute == cudaMemPoolAttrUsedMemCurrent ? s.pool_used : reserved;
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t bytes_to_keep) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  s.pool_reserved = std::min(s.pool_reserved, std::max(s.pool_used, bytes_to_keep));
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  if (!s.known(stream)) return result(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) return result(cudaErrorStreamCaptureUnsupported);
  stream->capture = s.graphs.emplace_back(new Graph);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  if (!s.known(stream) || stream->capture == nullptr) return result(cudaErrorInvalidValue);
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
  if (!s.known(stream)) return result(cudaErrorInvalidResourceHandle);
  if (!executable->held.empty()) return result(cudaErrorInvalidValue);
  if (!executable->has_memory) {
    if (!fits(s.pool_reserved + s.graphs_reserved + executable->peak_bytes)) return result(cudaErrorMemoryAllocation);
    s.graphs_reserved += executable->peak_bytes;
    executable->has_memory = true;
  }
  executable->held = executable->taken;
  for (const auto& work : executable->work) s.put(*stream, {work});
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  release(executable);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  release(graph);
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

cudaError_t cudaDeviceGraphMemTrim(int index) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  s.graphs_reserved = 0;
  for (Graph* const graph : s.graphs) {
    graph->has_memory = !graph->held.empty();
    if (graph->has_memory) s.graphs_reserved += graph->peak_bytes;
  }
  return result(index == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetGraphMemAttribute(int index, cudaGraphMemAttributeType attribute, void* value) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  std::uint64_t used = 0;
  for (const Graph* const graph : s.graphs) used += graph->held.empty() ? 0 : graph->peak_bytes;
  *static_cast<std::uint64_t*>(value) = attribute == cudaGraphMemAttrUsedMemCurrent ? used : s.graphs_reserved;
  return result(index == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

}  // namespace tally::cuda_host
