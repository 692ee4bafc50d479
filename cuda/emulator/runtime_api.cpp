#include "cuda/emulator/runtime_api.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <utility>

#include "cuda/emulator/block.hpp"
#include "cuda/emulator/memory.hpp"
#include "cuda/emulator/settings.hpp"
#include "cuda/emulator/stream.hpp"

namespace tally::cuda_host {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

namespace detail {

cudaError_t result(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

void enqueue(cudaStream_t stream, std::function<void()> work, cudaGraphNodeType node) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  s.put(*stream, {.work = std::move(work), .node = node});
}

void poison(void* data, std::size_t bytes, cudaStream_t stream) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  s.put(*stream, {[=] { poison_device_memory(data, bytes); }});
}

}  // namespace detail

using detail::result;

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNoKernelImageForDevice: return "no kernel image is available for execution on the device";
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

// Few processors, so that grids sized to fill them stay small here.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  if (index != 0) return result(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "CPU");
  constexpr int most_before_8 = 64;  // KiB of shared memory of a block
  properties->major = settings().shared_kib > most_before_8 ? 8 : 7;
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
  for (Stream* const stream : s.all) {
    if (stream->capture != nullptr) return lose_capture(*stream);  // waiting for captured work would never end
  }
  s.run_all();
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
  if (!s.known(stream)) return result(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) return lose_capture(*stream);
  while (!stream->items.empty() && s.run_one()) {
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
  if (!s.known(stream) || event == nullptr) return result(cudaErrorInvalidResourceHandle);
  s.put(*stream, {[] {}, event, event->recorded});
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new Event;
  (*event)->timed = (flags & cudaEventDisableTiming) == 0;
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
  if (!s.known(stream) || event == nullptr) return result(cudaErrorInvalidResourceHandle);
  const std::uint64_t time = ++event->recorded;
  s.put(*stream, {[event, time] {
    event->reached = time;
    event->reached_at = std::chrono::steady_clock::now();
  }});
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  if (event == nullptr) return result(cudaErrorInvalidResourceHandle);
  while (event->reached < event->recorded && s.run_one()) {
  }
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  if (event == nullptr) return result(cudaErrorInvalidResourceHandle);
  return event->reached < event->recorded ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t last) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  for (const Event* const event : {first, last}) {
    if (event == nullptr || !event->timed || event->recorded == 0) return result(cudaErrorInvalidResourceHandle);
    if (event->reached < event->recorded) return result(cudaErrorNotReady);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(last->reached_at - first->reached_at).count();
  return cudaSuccess;
}

}  // namespace tally::cuda_host
