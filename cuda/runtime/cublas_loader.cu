// cuBLAS, loaded by its first call. If it were linked, every start of the program would map its 600 MB, and a machine
// without it could not run even work that needs no GPU. Defines those functions of cublas_v2.h and cublasLt.h that
// tally calls; each forwards its arguments. cuBLAS loads cublasLt, which it needs, and dlsym() searches both.
#if defined(__CUDACC__)
#include <cublasLt.h>
#include <cublas_v2.h>
#include <dlfcn.h>

#include <string>

#include "core/error.hpp"

namespace {

void* load() {
  std::string tried;
#define TALLY_TEXT_OF(number) #number
#define TALLY_SO_NAME(number) "libcublas.so." TALLY_TEXT_OF(number)
  for (const char* path : {TALLY_CUBLAS_PATH, TALLY_SO_NAME(CUBLAS_VER_MAJOR)}) {
    if (void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
    tried += tally::formatted("\n  {}", dlerror());
  }
  tally::fail("cuda", "cuBLAS cannot be loaded; it is part of the CUDA toolkit:{}", tried);
}

void* find(const char* name) {
  static void* const library = load();
  return dlsym(library, name);
}

void* symbol(const char* name) {
  void* const found = find(name);
  tally::check(found != nullptr, "cuda", "cuBLAS has no function {}: {}", name, dlerror());
  return found;
}

}  // namespace

// Defines a function that calls cuBLAS' own.
#define TALLY_FORWARD(Result, name, parameters, arguments)                               \
  Result name parameters {                                                               \
    static auto* const function = reinterpret_cast<Result(*) parameters>(symbol(#name)); \
    return function arguments;                                                           \
  }

extern "C" {

TALLY_FORWARD(const char*, cublasGetStatusString, (cublasStatus_t status), (status))
TALLY_FORWARD(cublasStatus_t, cublasCreate_v2, (cublasHandle_t * handle), (handle))
TALLY_FORWARD(cublasStatus_t, cublasSetStream_v2, (cublasHandle_t handle, cudaStream_t stream), (handle, stream))
TALLY_FORWARD(cublasStatus_t, cublasSetWorkspace_v2, (cublasHandle_t handle, void* workspace, std::size_t bytes),
              (handle, workspace, bytes))
TALLY_FORWARD(cublasStatus_t, cublasGemmStridedBatchedEx,
              (cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
               const void* alpha, const void* a, cudaDataType type_a, int ld_a, long long stride_a, const void* b,
               cudaDataType type_b, int ld_b, long long stride_b, const void* beta, void* c, cudaDataType type_c,
               int ld_c, long long stride_c, int count, cublasComputeType_t compute, cublasGemmAlgo_t algorithm),
              (handle, op_a, op_b, m, n, k, alpha, a, type_a, ld_a, stride_a, b, type_b, ld_b, stride_b, beta, c,
               type_c, ld_c, stride_c, count, compute, algorithm))

// The first call of cublasLt. Without the library, the caller does without it.
cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t operation, std::size_t bytes,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  static auto* const function =
      reinterpret_cast<decltype(&cublasLtMatmulDescInit_internal)>(find("cublasLtMatmulDescInit_internal"));
  return function != nullptr ? function(operation, bytes, compute, scale) : CUBLAS_STATUS_NOT_SUPPORTED;
}

TALLY_FORWARD(cublasStatus_t, cublasLtMatmulDescSetAttribute,
              (cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const void* value,
               std::size_t bytes),
              (operation, attribute, value, bytes))
TALLY_FORWARD(cublasStatus_t, cublasLtMatrixLayoutInit_internal,
              (cublasLtMatrixLayout_t matrix, std::size_t bytes, cudaDataType type, std::uint64_t rows,
               std::uint64_t columns, std::int64_t ld),
              (matrix, bytes, type, rows, columns, ld))
TALLY_FORWARD(cublasStatus_t, cublasLtMatrixLayoutSetAttribute,
              (cublasLtMatrixLayout_t matrix, cublasLtMatrixLayoutAttribute_t attribute, const void* value,
               std::size_t bytes),
              (matrix, attribute, value, bytes))
TALLY_FORWARD(cublasStatus_t, cublasLtMatmulPreferenceInit_internal,
              (cublasLtMatmulPreference_t preference, std::size_t bytes), (preference, bytes))
TALLY_FORWARD(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,
              (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
               std::size_t bytes),
              (preference, attribute, value, bytes))
TALLY_FORWARD(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,
              (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
               cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
               cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t* results, int* found),
              (handle, operation, a, b, c, d, preference, wanted, results, found))
TALLY_FORWARD(cublasStatus_t, cublasLtMatmul,
              (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
               cublasLtMatrixLayout_t matrix_a, const void* b, cublasLtMatrixLayout_t matrix_b, const void* beta,
               const void* c, cublasLtMatrixLayout_t matrix_c, void* d, cublasLtMatrixLayout_t matrix_d,
               const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t bytes, cudaStream_t stream),
              (handle, operation, alpha, a, matrix_a, b, matrix_b, beta, c, matrix_c, d, matrix_d, algorithm, workspace,
               bytes, stream))

}  // extern "C"
#endif
