// Device memory and copies in stream order, and graphs.
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

// Reserves bytes for the pool.
bool reserve(Streams& s, std::size_t bytes) {
  if (bytes <= s.pool_reserved) return true;
  const std::size_t limit = settings().memory_bytes;
  if (limit != 0 && bytes > limit) return false;
  s.pool_reserved = bytes;
  return true;
}

cudaError_t release(Graph* graph) {
  if (--graph->references == 0) delete graph;
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaMallocAsync(void** block, std::size_t bytes, cudaStream_t stream) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  if (!s.known(stream)) return result(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return result(cudaErrorInvalidValue);
  if (stream->capture != nullptr) return lose_capture(*stream);  // CUDA would add a node, which costs time
  if (!reserve(s, s.pool_used + bytes)) return result(cudaErrorMemoryAllocation);
  *block = take_device_memory(bytes);
  if (*block == nullptr) return result(cudaErrorMemoryAllocation);
  s.pool_used += bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeAsync(void* block, cudaStream_t stream) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  if (!s.known(stream)) return result(cudaErrorInvalidResourceHandle);
  if (!in_device_memory(block, 1)) return result(cudaErrorInvalidValue);
  if (stream->capture != nullptr) return lose_capture(*stream);
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
  if (stream->capture != nullptr && kind != cudaMemcpyDeviceToDevice) return lose_capture(*stream);
  enqueue(
      stream,
      [=] {
        const DeviceAccess access;
        std::memcpy(target, source, bytes);
      },
      cudaGraphNodeTypeMemcpy);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t stream) {
  if (!in_device_memory(target, bytes)) return result(cudaErrorInvalidValue);
  enqueue(
      stream,
      [=] {
        const DeviceAccess access;
        std::memset(target, value, bytes);
      },
      cudaGraphNodeTypeMemset);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  *total = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  *free = static_cast<std::size_t>(std::min(available_memory(), static_cast<double>(*total)));
  if (const std::size_t limit = settings().memory_bytes; limit != 0) {
    *total = limit;
    *free = limit - std::min(limit, s.pool_reserved);
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
  stream->capture = new Graph;
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
  for (const Work& work : executable->work) s.put(*stream, {work.work});
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) { return release(executable); }

cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return release(graph); }

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  std::size_t found = 0;
  for (Work& work : graph->work) {
    if (!work.node.has_value()) continue;
    if (nodes != nullptr && found < *count) nodes[found] = &work;
    ++found;
  }
  *count = nodes == nullptr ? found : std::min(*count, found);
  return cudaSuccess;
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  *type = *node->node;
  return cudaSuccess;
}

}  // namespace tally::cuda_host
