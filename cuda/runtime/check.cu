#include "cuda/runtime/check.hpp"

#include <cstdlib>
#include <string_view>

#include "core/error.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {
namespace {

[[noreturn]] void fail_call(const char* call, const char* text, const char* file, int line) {
  fail("cuda", "{} failed: {} ({}:{})", call, text, file, line);
}

}  // namespace

void check_call(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // reported now, not again after the next launch
  if (error == cudaErrorNoKernelImageForDevice) {
    fail("cuda",
         "this build has no code for this GPU; nvidia-smi --query-gpu=compute_cap --format=csv prints its compute "
         "capability: for 7.5 configure with -D CMAKE_CUDA_ARCHITECTURES=75, and build again");
  }
  fail_call(call, cudaGetErrorString(error), file, line);
}

void check_call(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status != CUBLAS_STATUS_SUCCESS) fail_call(call, cublasGetStatusString(status), file, line);
}

bool waits_after_launch() {
  static const bool wait = [] {
    const char* const value = std::getenv("TALLY_CUDA_SYNC");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return wait;
}

void check_launch(cudaStream_t stream, const char* file, int line) {
  check_call(cudaGetLastError(), "the launch of a kernel", file, line);
  if (waits_after_launch()) check_call(cudaStreamSynchronize(stream), "a kernel", file, line);
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
