// The calls of cuBLAS that the backend uses, implemented by the CPU's matmuls, with the same argument checks.
#pragma once

#include "cuda/emulator/runtime_api.hpp"

namespace tally::cuda_host {

enum cublasStatus_t : int {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_NOT_SUPPORTED = 15
};
const char* cublasGetStatusString(cublasStatus_t status);

enum cublasOperation_t : int { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cudaDataType_t : int { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16BF = 14 };
enum cublasComputeType_t : int {
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_64F = 70,
  CUBLAS_COMPUTE_32F_FAST_16BF = 75,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77
};
enum cublasGemmAlgo_t : int { CUBLAS_GEMM_DEFAULT = -1 };

struct Cublas {
  cudaStream_t stream = nullptr;
  std::uint64_t products = 0;  // calls so far
};
using cublasHandle_t = Cublas*;

cublasStatus_t cublasCreate(cublasHandle_t* handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, std::size_t bytes);

// c_i = alpha op(a_i) op(b_i) + beta c_i for i < count; all column-major, op(a) [m, k], op(b) [k, n], c [m, n]. alpha
// and beta are in host memory, the matrices in device memory: CUBLAS_STATUS_INVALID_VALUE if one does not fit into its
// block. All are f32, or f64 with CUBLAS_COMPUTE_64F, or a and b bf16 with CUBLAS_COMPUTE_32F:
// CUBLAS_STATUS_NOT_SUPPORTED otherwise. The FAST types round a and b to TF32 or bf16 before the multiplication
// (core/precision.hpp).
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                                          int n, int k, const void* alpha, const void* a, cudaDataType_t type_a,
                                          int ld_a, long long stride_a, const void* b, cudaDataType_t type_b, int ld_b,
                                          long long stride_b, const void* beta, void* c, cudaDataType_t type_c,
                                          int ld_c, long long stride_c, int count, cublasComputeType_t compute,
                                          cublasGemmAlgo_t algorithm);

}  // namespace tally::cuda_host
