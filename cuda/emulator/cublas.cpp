#include "cuda/emulator/cublas.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <vector>

#include "core/cpu/matmul/blas.hpp"
#include "core/cpu/parallel.hpp"
#include "core/math/bfloat16.hpp"
#include "core/precision.hpp"
#include "cuda/emulator/memory.hpp"

namespace tally::cuda_host {
namespace {

// Whether `count` column-major matrices fit into the memory block at their address.
template <class T>
bool fits(const T* data, int rows, int columns, int ld, long long stride, int count) {
  if (ld < std::max(1, rows)) return false;
  if (rows == 0 || columns == 0 || count == 0) return true;
  const std::int64_t matrix = std::int64_t{ld} * (columns - 1) + rows;
  const std::int64_t elements = stride * (count - 1) + matrix;
  return stride >= 0 && in_device_memory(data, static_cast<std::size_t>(elements) * sizeof(T));
}

float to_tf32(float x) { return round_to_tf32(x); }
float to_bf16(float x) { return tally::round_to_bf16(x); }

// A rounded copy of an operand's matrices.
class Rounded {
 public:
  template <class X>
  Rounded(const X* data, std::int64_t elements, float (&round)(float)) : values_(static_cast<std::size_t>(elements)) {
    std::transform(data, data + elements, values_.begin(), [&](X x) { return round(static_cast<float>(x)); });
  }
  const float* data() const { return values_.data(); }

 private:
  std::vector<float> values_;
};

// What cublasLt computes in the same kernel: d = alpha op(a) op(b) + beta c + bias, and the sums of op(b)'s columns. c
// and the bias have the type of d.
struct LtEpilogue {
  const void* c = nullptr;
  const void* bias = nullptr;
  std::int64_t bias_stride = 0;
  float* sums = nullptr;

  template <class T, class X, class C>
  void begin(C* d, int ld, int m, int n, int k, T beta, const X* b, int step, int ld_b, int matrix,
             std::int64_t stride_c) const {
    const C* const before_all = static_cast<const C*>(c) + matrix * stride_c;
    const C* const own_bias = bias == nullptr ? nullptr : static_cast<const C*>(bias) + matrix * bias_stride;
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; sums != nullptr && l < k; ++l) sum += static_cast<double>(b[j * ld_b + l * step]);
      if (sums != nullptr) sums[j] = static_cast<float>(sum);
      for (std::int64_t i = 0; i < m; ++i) {
        const T before = beta == 0 ? T{0} : beta * static_cast<T>(before_all[j * ld + i]);
        d[j * ld + i] = static_cast<C>(before + (own_bias == nullptr ? T{0} : static_cast<T>(own_bias[i])));
      }
    }
  }
};

// A column-major matrix is the transposed of a row-major one: c^T = op(b)^T op(a)^T.
template <class T, class X, class C>
cublasStatus_t multiply(cublasHandle_t handle, cudaStream_t stream, const LtEpilogue* lt, cublasOperation_t op_a,
                        cublasOperation_t op_b, int m, int n, int k, const T* alpha, const X* a, int ld_a,
                        long long stride_a, const X* b, int ld_b, long long stride_b, const T* beta, C* c, int ld_c,
                        long long stride_c, int count, cublasComputeType_t compute) {
  if (handle == nullptr || stream == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool known_operations =
      (op_a == CUBLAS_OP_N || op_a == CUBLAS_OP_T) && (op_b == CUBLAS_OP_N || op_b == CUBLAS_OP_T);
  if (!known_operations || std::min({m, n, k, count}) < 0 || alpha == nullptr || beta == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool turn_a = op_a == CUBLAS_OP_T, turn_b = op_b == CUBLAS_OP_T;
  // The matrices of a result must not overlap: they are stored one after the other, or next to each other in the same
  // rows of memory.
  const bool apart = count <= 1 || m == 0 || n == 0 || stride_c >= std::int64_t{ld_c} * (n - 1) + m ||
                     (stride_c >= m && stride_c * (count - 1) + m <= ld_c);
  if (!fits(a, turn_a ? k : m, turn_a ? m : k, ld_a, stride_a, count) ||
      !fits(b, turn_b ? n : k, turn_b ? k : n, ld_b, stride_b, count) || !fits(c, m, n, ld_c, stride_c, count) ||
      !apart) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (m == 0 || n == 0 || count == 0) return CUBLAS_STATUS_SUCCESS;
  ++handle->products;
  cpu::load_blas();
  const auto extent = [count](bool turned, int rows, int columns, int ld, long long stride) {
    if (turned) std::swap(rows, columns);
    return rows == 0 || columns == 0 ? 0 : stride * (count - 1) + std::int64_t{ld} * (columns - 1) + rows;
  };
  const std::int64_t size_a = extent(turn_a, m, k, ld_a, stride_a), size_b = extent(turn_b, k, n, ld_b, stride_b);
  const bool fused = lt != nullptr;
  detail::enqueue(stream, [=, alpha = *alpha, beta = *beta, end = fused ? *lt : LtEpilogue{}]() mutable {
    const DeviceAccess access;
    if (fused) {
      for (int matrix = 0; matrix < count; ++matrix) {
        end.begin(c + matrix * stride_c, ld_c, m, n, k, beta, b, turn_b ? ld_b : 1, turn_b ? 1 : ld_b, matrix,
                  stride_c);
      }
      beta = T{1};
    }
    const auto run = [&](const T* of_a, const T* of_b) {
      parallel_for(count, [&](std::int64_t i) {
        C* const result = c + i * stride_c;
        if constexpr (std::is_same_v<C, T>) {
          cpu::gemm_tile(turn_b, turn_a, n, m, k, alpha, of_b + i * stride_b, ld_b, of_a + i * stride_a, ld_a, beta,
                         result, ld_c);
        } else {  // sums in T, rounded at the end
          std::vector<T> sums(static_cast<std::size_t>(m) * static_cast<std::size_t>(n));
          for (int j = 0; j < n; ++j) {
            std::transform(result + j * ld_c, result + j * ld_c + m, sums.data() + std::int64_t{j} * m,
                           [&](C x) { return beta == T{0} ? T{0} : static_cast<T>(x); });
          }
          cpu::gemm_tile(turn_b, turn_a, n, m, k, alpha, of_b + i * stride_b, ld_b, of_a + i * stride_a, ld_a, beta,
                         sums.data(), m);
          for (int j = 0; j < n; ++j) {
            const T* const column = sums.data() + std::int64_t{j} * m;
            std::transform(column, column + m, result + j * ld_c, [](T x) { return static_cast<C>(x); });
          }
        }
      });
    };
    if constexpr (std::is_same_v<T, float>) {
      if (std::is_same_v<X, Bfloat16> || compute != CUBLAS_COMPUTE_32F) {
        float (&round)(float) = compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? to_tf32 : to_bf16;
        return run(Rounded(a, size_a, round).data(), Rounded(b, size_b, round).data());
      }
    }
    if constexpr (std::is_same_v<T, X>) run(a, b);
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "the operation completed successfully";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE: return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the functionality requested is not supported";
  }
  return "unknown status";
}

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new Cublas;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, std::size_t bytes) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  return bytes == 0 || in_device_memory(workspace, bytes) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                                          int n, int k, const void* alpha, const void* a, cudaDataType_t type_a,
                                          int ld_a, long long stride_a, const void* b, cudaDataType_t type_b, int ld_b,
                                          long long stride_b, const void* beta, void* c, cudaDataType_t type_c,
                                          int ld_c, long long stride_c, int count, cublasComputeType_t compute,
                                          cublasGemmAlgo_t algorithm) {
  const auto run = [&]<class T, class X, class C>(T, X, C) {
    return multiply(handle, handle == nullptr ? nullptr : handle->stream, nullptr, op_a, op_b, m, n, k,
                    static_cast<const T*>(alpha), static_cast<const X*>(a), ld_a, stride_a, static_cast<const X*>(b),
                    ld_b, stride_b, static_cast<const T*>(beta), static_cast<C*>(c), ld_c, stride_c, count, compute);
  };
  const cudaDataType_t type = compute == CUBLAS_COMPUTE_64F ? CUDA_R_64F : CUDA_R_32F;
  const bool in_bf16 = type_a == CUDA_R_16BF && compute == CUBLAS_COMPUTE_32F;
  if (type_a != type_b || (type_a != type && !in_bf16) || (type_c != type && !(in_bf16 && type_c == CUDA_R_16BF)) ||
      algorithm != CUBLAS_GEMM_DEFAULT) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (in_bf16 && type_c == CUDA_R_16BF) return run(float{}, Bfloat16{}, Bfloat16{});
  if (in_bf16) return run(float{}, Bfloat16{}, float{});
  return type == CUDA_R_64F ? run(double{}, double{}, double{}) : run(float{}, float{}, float{});
}

// --- cublasLt ---
namespace {

// Copies an attribute of exactly this size.
template <class T>
cublasStatus_t assign(T& attribute, const void* value, std::size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&attribute, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

std::uint64_t hash_of(const cublasLtMatmulDescOpaque_t& operation,
                      std::initializer_list<cublasLtMatrixLayout_t> matrices) {
  std::uint64_t hash = 0;
  const auto add = [&](auto value) { hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x100000001b3u; };
  add(operation.compute), add(operation.op_a), add(operation.op_b), add(operation.epilogue);
  add(operation.bias_stride);
  for (const cublasLtMatrixLayout_t x : matrices) {
    add(x->type), add(x->rows), add(x->columns), add(x->ld), add(x->count), add(x->stride);
  }
  return hash;
}

std::uint32_t alignment_of(const void* address) {
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  return static_cast<std::uint32_t>(std::min<std::uintptr_t>(number & (~number + 1), 256));
}

}  // namespace

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t operation, cublasComputeType_t compute,
                                      cudaDataType_t scale) {
  *operation = {compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr, 0};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return assign(operation->op_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return assign(operation->op_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return assign(operation->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return assign(operation->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: return assign(operation->bias_stride, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t matrix, cudaDataType_t type, std::uint64_t rows,
                                        std::uint64_t columns, std::int64_t ld) {
  *matrix = {type, rows, columns, ld, 1, 0};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matrix,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return assign(matrix->count, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return assign(matrix->stride, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t preference) {
  *preference = {0, {0, 0, 0, 7, 0, 256, 256, 256, 256}};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return assign(preference->workspace_bytes, value, bytes);
  return assign(preference->numbers[attribute], value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool has_vector = operation->epilogue != CUBLASLT_EPILOGUE_DEFAULT;
  const bool turn_a = operation->op_a == CUBLAS_OP_T, turn_b = operation->op_b == CUBLAS_OP_T;
  const std::uint64_t k = turn_a ? a->rows : a->columns;
  if (wanted < 1 || (has_vector && operation->bias == nullptr) || c->rows != d->rows || c->columns != d->columns ||
      d->rows != (turn_a ? a->columns : a->rows) || d->columns != (turn_b ? b->rows : b->columns) ||
      k != (turn_b ? b->columns : b->rows)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool in_bf16 = a->type == CUDA_R_16BF && operation->compute == CUBLAS_COMPUTE_32F;
  if (operation->scale != CUDA_R_32F || operation->compute == CUBLAS_COMPUTE_64F || a->type != b->type ||
      (a->type != CUDA_R_32F && !in_bf16) || (d->type != CUDA_R_32F && !(in_bf16 && d->type == CUDA_R_16BF)) ||
      *c != *d || a->count != d->count || b->count != d->count) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool sums = operation->epilogue == CUBLASLT_EPILOGUE_BGRADB;
  if (sums && (d->count > 1 || d->type != CUDA_R_32F)) return CUBLAS_STATUS_NOT_SUPPORTED;
  cublasLtMatmulAlgo_t algorithm{hash_of(*operation, {a, b, c, d}), preference->workspace_bytes, {}};
  std::copy_n(preference->numbers + CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 4, algorithm.alignment);
  algorithm.alignment[4] = has_vector ? alignment_of(operation->bias) : 1;
  *results = {algorithm, CUBLAS_STATUS_SUCCESS};
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t matrix_a, const void* b, cublasLtMatrixLayout_t matrix_b,
                              const void* beta, const void* c, cublasLtMatrixLayout_t matrix_c, void* d,
                              cublasLtMatrixLayout_t matrix_d, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t bytes, cudaStream_t stream) {
  if (algorithm == nullptr || algorithm->problem != hash_of(*operation, {matrix_a, matrix_b, matrix_c, matrix_d}) ||
      bytes < algorithm->workspace_bytes || !in_device_memory(workspace, bytes)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const int m = static_cast<int>(matrix_d->rows), n = static_cast<int>(matrix_d->columns);
  const int k = static_cast<int>(operation->op_a == CUBLAS_OP_T ? matrix_a->rows : matrix_a->columns);
  const int ld = static_cast<int>(matrix_d->ld);
  const bool adds = operation->epilogue == CUBLASLT_EPILOGUE_BIAS,
             sums = operation->epilogue == CUBLASLT_EPILOGUE_BGRADB;
  const void* const addresses[] = {a, b, c, d, operation->bias};
  for (int i = 0; i < (adds || sums ? 5 : 4); ++i) {
    if (addresses[i] == nullptr || alignment_of(addresses[i]) < std::min(algorithm->alignment[i], 256u)) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  const auto run = [&]<class X, class C>(X, C) {
    const auto* const before = static_cast<const C*>(c);
    auto* const result = static_cast<C*>(d);
    const auto* const bias = static_cast<const C*>(operation->bias);
    const int count = matrix_d->count;
    const std::int64_t apart = std::abs(before - result);
    if (!fits(before, m, n, ld, matrix_c->stride, count) || (apart > 0 && apart < std::int64_t{ld} * (n - 1) + m) ||
        (adds && !fits(bias, m, 1, m, operation->bias_stride, count)) ||
        (sums && !fits(static_cast<const float*>(operation->bias), n, 1, n, 0, 1))) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    const LtEpilogue lt{before, adds ? bias : nullptr, operation->bias_stride,
                        sums ? static_cast<float*>(operation->bias) : nullptr};
    return multiply(handle, stream, &lt, operation->op_a, operation->op_b, m, n, k, static_cast<const float*>(alpha),
                    static_cast<const X*>(a), static_cast<int>(matrix_a->ld), matrix_a->stride,
                    static_cast<const X*>(b), static_cast<int>(matrix_b->ld), matrix_b->stride,
                    static_cast<const float*>(beta), result, ld, matrix_d->stride, count, operation->compute);
  };
  if (matrix_d->type == CUDA_R_16BF) return run(Bfloat16{}, Bfloat16{});
  return matrix_a->type == CUDA_R_16BF ? run(Bfloat16{}, float{}) : run(float{}, float{});
}

}  // namespace tally::cuda_host
