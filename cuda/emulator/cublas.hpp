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

// --- cublasLt: d = alpha op(a) op(b) + beta c with an epilogue ---
using cublasLtHandle_t = cublasHandle_t;
using cudaDataType = cudaDataType_t;

enum cublasLtEpilogue_t : std::uint32_t {
  CUBLASLT_EPILOGUE_DEFAULT = 1,
  CUBLASLT_EPILOGUE_BIAS = 4,      // + bias [m] to each column
  CUBLASLT_EPILOGUE_BGRADB = 512,  // also writes bias [n], the sum of each column of op(b)
};
enum cublasLtMatmulDescAttributes_t : int {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLASLT_MATMUL_DESC_TRANSB = 4,
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
  CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE = 10
};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t op_a, op_b;
  cublasLtEpilogue_t epilogue;
  void* bias;
  std::int64_t bias_stride;
};
enum cublasLtMatrixLayoutAttribute_t : int {
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t ld;
  std::int32_t count;
  std::int64_t stride;
  bool operator==(const cublasLtMatrixLayoutOpaque_t&) const = default;
};
using cublasLtMatmulDesc_t = cublasLtMatmulDescOpaque_t*;
using cublasLtMatrixLayout_t = cublasLtMatrixLayoutOpaque_t*;

enum cublasLtReductionScheme_t : std::uint32_t { CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2 };
enum cublasLtMatmulPreferenceAttributes_t : int {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace_bytes;
  std::uint32_t numbers[9];  // the others, by attribute
};
using cublasLtMatmulPreference_t = cublasLtMatmulPreferenceOpaque_t*;
struct cublasLtMatmulAlgo_t {
  std::uint64_t problem;  // its hash
  std::uint64_t workspace_bytes;
  std::uint32_t alignment[5];  // of a, b, c, d and the bias
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  cublasStatus_t state;
};

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t operation, cublasComputeType_t compute,
                                      cudaDataType_t scale);
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes);
cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t matrix, cudaDataType_t type, std::uint64_t rows,
                                        std::uint64_t columns, std::int64_t ld);
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matrix,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes);
cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t preference);
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes);
// Finds an algorithm if c and d are f32, and a and b are f32, or bf16 with CUBLAS_COMPUTE_32F. In the latter case c, d
// and the bias may all be bf16. Sums of columns require a single matrix and an f32 result.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found);
// Checks its arguments as cublasGemmStridedBatchedEx does. CUBLAS_STATUS_INVALID_VALUE also if the algorithm is for
// another problem, an address is aligned less than the algorithm requires, or the bias is null. Likewise if the bias or
// the workspace does not fit into its block, or if c is not d and overlaps it.
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t matrix_a, const void* b, cublasLtMatrixLayout_t matrix_b,
                              const void* beta, const void* c, cublasLtMatrixLayout_t matrix_c, void* d,
                              cublasLtMatrixLayout_t matrix_d, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t bytes, cudaStream_t stream);

}  // namespace tally::cuda_host
