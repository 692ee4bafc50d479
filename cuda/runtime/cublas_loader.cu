// cuBLAS, loaded by its first call. If it were linked, every start of the program would map its 600 MB, and a machine
// without it could not run even work that needs no GPU. Defines those functions of cublas_v2.h that tally calls; each
// forwards its arguments.
#if defined(__CUDACC__)
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

void* symbol(const char* name) {
  static void* const library = load();
  void* const found = dlsym(library, name);
  tally::check(found != nullptr, "cuda", "cuBLAS has no function {}: {}", name, dlerror());
  return found;
}

template <class... Arguments>
cublasStatus_t call(void* function, Arguments... arguments) {
  return reinterpret_cast<cublasStatus_t (*)(Arguments...)>(function)(arguments...);
}

}  // namespace

extern "C" {

const char* cublasGetStatusString(cublasStatus_t status) {
  static void* const function = symbol("cublasGetStatusString");
  return reinterpret_cast<const char* (*)(cublasStatus_t)>(function)(status);
}

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  static void* const function = symbol("cublasCreate_v2");
  return call(function, handle);
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  static void* const function = symbol("cublasSetStream_v2");
  return call(function, handle, stream);
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, std::size_t bytes) {
  static void* const function = symbol("cublasSetWorkspace_v2");
  return call(function, handle, workspace, bytes);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                                          int n, int k, const void* alpha, const void* a, cudaDataType type_a, int ld_a,
                                          long long stride_a, const void* b, cudaDataType type_b, int ld_b,
                                          long long stride_b, const void* beta, void* c, cudaDataType type_c, int ld_c,
                                          long long stride_c, int count, cublasComputeType_t compute,
                                          cublasGemmAlgo_t algorithm) {
  static void* const function = symbol("cublasGemmStridedBatchedEx");
  return call(function, handle, op_a, op_b, m, n, k, alpha, a, type_a, ld_a, stride_a, b, type_b, ld_b, stride_b, beta,
              c, type_c, ld_c, stride_c, count, compute, algorithm);
}

}  // extern "C"
#endif
