// The calls of cuBLAS that the backend uses, on the CPU's matrix products, with the same checks of their arguments.
#pragma once

#include "cuda/host/runtime_api.hpp"

namespace tally::cuda_host {

enum cublasStatus_t : int {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_EXECUTION_FAILED = 13
};
const char* cublasGetStatusString(cublasStatus_t status);

enum cublasOperation_t : int { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasMath_t : int { CUBLAS_DEFAULT_MATH = 0, CUBLAS_PEDANTIC_MATH = 2, CUBLAS_TF32_TENSOR_OP_MATH = 3 };

struct Cublas {
  cudaStream_t stream = nullptr;
  bool tf32 = false;
};
using cublasHandle_t = Cublas*;

cublasStatus_t cublasCreate(cublasHandle_t* handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
// With CUBLAS_TF32_TENSOR_OP_MATH operands in fp32 are rounded to TF32 (10 bits after the point) before their product.
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, std::size_t bytes);

// c_i = alpha op(a_i) op(b_i) + beta c_i for i < count; all column-major, op(a) [m, k], op(b) [k, n], c [m, n]. alpha
// and beta lie in host memory, the matrices in the device's: CUBLAS_STATUS_INVALID_VALUE where one does not fit there.
cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                                         int n, int k, const float* alpha, const float* a, int ld_a, long long stride_a,
                                         const float* b, int ld_b, long long stride_b, const float* beta, float* c,
                                         int ld_c, long long stride_c, int count);
cublasStatus_t cublasDgemmStridedBatched(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                                         int n, int k, const double* alpha, const double* a, int ld_a,
                                         long long stride_a, const double* b, int ld_b, long long stride_b,
                                         const double* beta, double* c, int ld_c, long long stride_c, int count);

}  // namespace tally::cuda_host
