// NCCL for cuda/distributed/gradient_reducer.cu: its own header if nvcc compiles and the toolkit has one
// (TALLY_WITH_NCCL), otherwise host/, which sends over MPI.
#pragma once

#include "cuda/runtime/check.hpp"

#if defined(__CUDACC__)
#if TALLY_WITH_NCCL
#include <nccl.h>
#endif
#else
#include "cuda/emulator/nccl.hpp"
#define TALLY_WITH_NCCL 1
#endif

#if TALLY_WITH_NCCL
// As CUDA_CHECK (cuda/runtime/check.hpp).
#define NCCL_CHECK(call) ::tally::TALLY_CUDA_NAMESPACE::check_call(call, #call, __FILE__, __LINE__)

namespace tally::TALLY_CUDA_NAMESPACE {

void check_call(ncclResult_t result, const char* call, const char* file, int line);

}  // namespace tally::TALLY_CUDA_NAMESPACE
#endif
