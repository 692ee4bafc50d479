// The calls of the CUDA runtime that the backend uses, with CUDA's names, arguments and error codes, on host memory and
// OS threads. Device memory is filled with NaN when it is allocated. Every address range passed to a call must be in
// the right kind of memory, host or device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "cuda/emulator/language.hpp"

namespace tally::cuda_host {

enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901
};
const char* cudaGetErrorString(cudaError_t error);
// The last error of a call on this thread; reading it clears it.
cudaError_t cudaGetLastError();

enum cudaMemcpyKind : int { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };

struct Stream;
struct Event;
struct Graph;
struct Work;
using cudaStream_t = Stream*;
using cudaEvent_t = Event*;
using cudaGraph_t = Graph*;
using cudaGraphExec_t = Graph*;
using cudaGraphNode_t = Work*;

struct cudaDeviceProp {
  char name[256];
  int major, minor;
  int multiProcessorCount;
  std::size_t totalGlobalMem;
};

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int index);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index);
enum cudaDeviceAttr : int { cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int index);
cudaError_t cudaDeviceSynchronize();

inline constexpr unsigned cudaStreamNonBlocking = 1;
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);

inline constexpr unsigned cudaEventDefault = 0, cudaEventDisableTiming = 2;
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t last);

cudaError_t cudaMallocAsync(void** block, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* block, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t stream);

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);

struct MemPool;
using cudaMemPool_t = MemPool*;
enum cudaMemPoolAttr : int {
  cudaMemPoolAttrReleaseThreshold = 4,
  cudaMemPoolAttrReservedMemCurrent = 5,
  cudaMemPoolAttrUsedMemCurrent = 7
};
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int index);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t bytes_to_keep);

// Work put into a capturing stream is recorded instead of run. Launching the graph runs it, with the addresses and
// parameters of the capture. A capture becomes invalid by allocating or freeing memory, copying host memory, or
// waiting.
enum cudaStreamCaptureMode : int { cudaStreamCaptureModeThreadLocal = 1, cudaStreamCaptureModeRelaxed = 2 };
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode);

enum cudaGraphNodeType : int {
  cudaGraphNodeTypeKernel = 0,
  cudaGraphNodeTypeMemcpy = 1,
  cudaGraphNodeTypeMemset = 2,
  cudaGraphNodeTypeMemAlloc = 10,
  cudaGraphNodeTypeMemFree = 11
};
// The number of nodes if `nodes` is null, otherwise *count nodes.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count);
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type);

namespace detail {

// Puts work into a stream: it runs at once or later, or is recorded in a graph.
void enqueue(cudaStream_t stream, std::function<void()> work, cudaGraphNodeType node = cudaGraphNodeTypeKernel);
// Fills device memory with NaN, as if it were newly allocated. No node in a graph.
void poison(void* data, std::size_t bytes, cudaStream_t stream);

// cudaErrorInvalidConfiguration if a GPU would refuse such a launch.
cudaError_t check_configuration(dim3 grid, dim3 block, std::size_t shared_bytes);

// Runs body(arguments) for every thread of the grid. For a mistake in the kernel it throws InternalError with block,
// thread and line.
void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, SourceLine line, void (*body)(const void*),
              const void* arguments);

// The result of a call: remembered for cudaGetLastError.
cudaError_t result(cudaError_t error);

}  // namespace detail
}  // namespace tally::cuda_host
