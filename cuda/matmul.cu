// Matmuls, also batched, by cuBLAS: c[..., M, N] = alpha a[..., M, K] b[..., K, N], + bias [N] on each row, + residual.
//
// cuBLAS supports only column-major matrices. A row-major matrix is the transpose of a column-major one in the same
// memory, so c = a b is computed as c^T = b^T a^T. Batch axes are merged; the innermost remaining one is cuBLAS's
// batch.
#include "core/device/backend.hpp"
#include "core/math/loop.hpp"
#include "core/matrix_layout.hpp"
#include "cuda/runtime/check.hpp"
#include "cuda/runtime/context.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

cublasOperation_t operation_of(const Layout& layout) { return layout.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

cublasComputeType_t compute_type(float) {
  switch (matmul_precision()) {
    case MatmulPrecision::f32: break;
    case MatmulPrecision::tf32: return CUBLAS_COMPUTE_32F_FAST_TF32;
    case MatmulPrecision::bf16: return CUBLAS_COMPUTE_32F_FAST_16BF;
  }
  return CUBLAS_COMPUTE_32F;
}
cublasComputeType_t compute_type(double) { return CUBLAS_COMPUTE_64F; }

template <class T>
constexpr cudaDataType_t type_of = std::is_same_v<T, Bfloat16> ? CUDA_R_16BF
                                   : std::is_same_v<T, float>  ? CUDA_R_32F
                                                               : CUDA_R_64F;

// c, of type C, is row-major with rows ld_c apart. accumulate: add to c. a and b have type X, sums T.
template <class T, class X, class C = T>
void multiply(const View& c, std::int64_t ld_c, const View& a, const View& b, double alpha, bool accumulate) {
  const Layout layout_a = *layout_of(a), layout_b = *layout_of(b);
  const std::int64_t m = c.shape.back(1), n = c.shape.back(0), k = a.shape.back(0);
  const auto batch = make_loop(batch_of(c).shape, batch_of(c), batch_of(a), batch_of(b));
  const cublasHandle_t blas = context().blas;
  constexpr bool in_bf16 = std::is_same_v<X, Bfloat16>;
  const T factor = static_cast<T>(alpha), before = accumulate ? T{1} : T{0};
  const auto step = batch.inner_step();
  for (std::int64_t row = 0; row < batch.rows(); ++row) {
    const auto offset = batch.row_offsets(row);
    CUBLAS_CHECK(cublasGemmStridedBatchedEx(
        blas, operation_of(layout_b), operation_of(layout_a), static_cast<int>(n), static_cast<int>(m),
        static_cast<int>(k), &factor, b.as<X>() + offset[2], type_of<X>, static_cast<int>(layout_b.ld), step[2],
        a.as<X>() + offset[1], type_of<X>, static_cast<int>(layout_a.ld), step[1], &before, c.as<C>() + offset[0],
        type_of<C>, static_cast<int>(ld_c), step[0], static_cast<int>(batch.inner_size()),
        in_bf16 ? CUBLAS_COMPUTE_32F : compute_type(T{}), CUBLAS_GEMM_DEFAULT));
  }
}

// c = bias on each row, + residual
void start_with(const View& c, View bias, const View& residual) {
  if (!bias) return copy(c, residual);
  const std::int64_t step = bias.strides[0];
  bias.shape = c.shape;
  bias.strides = {};
  bias.strides[c.shape.rank - 1] = step;
  residual ? binary(BinaryOp::add, c, residual, bias) : copy(c, bias);
}

}  // namespace

std::int64_t matmul_workspace(View, View) { return 0; }

void matmul(View c, View a, View b, const Epilogue& end, void*) {
  if (c.numel() == 0) return;
  const bool is_there = end.residual && end.residual.data == c.data && !end.bias, add = end.residual || end.bias;
  if (add && !is_there) start_with(c, end.bias, end.residual);
  if (a.shape.back() == 0) {
    if (!add) fill(c, 0);
    return;
  }
  const Layout layout = *layout_of(c);
  if (layout.transposed) {
    c = transposed(c);
    a = transposed(std::exchange(b, transposed(a)));
  }
  if (c.dtype == DType::bf16) return multiply<float, Bfloat16, Bfloat16>(c, layout.ld, a, b, end.alpha, add);
  dispatch_mixed(c.dtype, a.dtype, [&](auto zero, auto operand) {
    multiply<decltype(zero), decltype(operand)>(c, layout.ld, a, b, end.alpha, add);
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
