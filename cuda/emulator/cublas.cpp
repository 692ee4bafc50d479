#include "cuda/emulator/cublas.hpp"

#include <algorithm>
#include <cstdint>
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
float to_bf16(float x) { return round_to_bf16(x); }

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

// A column-major matrix is the transposed of a row-major one: c^T = op(b)^T op(a)^T.
template <class T, class X, class C>
cublasStatus_t multiply(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                        const T* alpha, const X* a, int ld_a, long long stride_a, const X* b, int ld_b,
                        long long stride_b, const T* beta, C* c, int ld_c, long long stride_c, int count,
                        cublasComputeType_t compute) {
  if (handle == nullptr || handle->stream == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
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
  detail::enqueue(handle->stream, [=, alpha = *alpha, beta = *beta]() mutable {
    const DeviceAccess access;
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
    return multiply(handle, op_a, op_b, m, n, k, static_cast<const T*>(alpha), static_cast<const X*>(a), ld_a, stride_a,
                    static_cast<const X*>(b), ld_b, stride_b, static_cast<const T*>(beta), static_cast<C*>(c), ld_c,
                    stride_c, count, compute);
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

}  // namespace tally::cuda_host
