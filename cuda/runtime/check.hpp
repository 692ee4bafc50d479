// Failures of CUDA and cuBLAS become Error with the failing call, its text and source line:
//   [cuda] cudaMallocAsync(&block, bytes, stream) failed: out of memory (cuda/runtime/allocator.cu:39)
#pragma once

#include "cuda/runtime/runtime.hpp"

#define CUDA_CHECK(call) ::tally::TALLY_CUDA_NAMESPACE::check_call(call, #call, __FILE__, __LINE__)
#define CUBLAS_CHECK(call) ::tally::TALLY_CUDA_NAMESPACE::check_call(call, #call, __FILE__, __LINE__)

namespace tally::TALLY_CUDA_NAMESPACE {

// Throw Error unless the call succeeded.
void check_call(cudaError_t error, const char* call, const char* file, int line);
void check_call(cublasStatus_t status, const char* call, const char* file, int line);

// TALLY_CUDA_SYNC=1 in the environment
bool waits_after_launch();
// After a launch: checks that it was accepted, and with TALLY_CUDA_SYNC=1 waits and checks that it ran without error.
void check_launch(cudaStream_t stream, const char* file, int line);

}  // namespace tally::TALLY_CUDA_NAMESPACE
