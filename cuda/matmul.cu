// Matrix products, also of batches, by cuBLAS: c[..., M, N] = alpha a[..., M, K] b[..., K, N] (+ c) (+ bias [N] on each
// row).
//
// cuBLAS knows column-major matrices only. A row-major matrix is the transposed of a column-major one of the same
// memory, so that c = a b is asked for as c^T = b^T a^T. A row-major or transposed operand is read in place, any other
// is copied first. Batch axes are merged; the innermost of those that are left is cuBLAS's batch.
#include <algorithm>
#include <limits>
#include <optional>

#include "core/backend.hpp"
#include "core/error.hpp"
#include "core/loop.hpp"
#include "core/matrix_layout.hpp"
#include "cuda/check.hpp"
#include "cuda/context.hpp"
#include "cuda/scratch.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

// The matrices of a or b, in place or copied.
class Operand {
 public:
  explicit Operand(const View& x) : view_(x) {
    const auto layout = layout_of(x);
    layout_ = layout ? *layout : Layout{false, x.shape.back()};
    if (!layout) make_copy();
  }

  View batch() const { return batch_of(view_); }
  cublasOperation_t operation() const { return layout_.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }
  std::int64_t ld() const { return layout_.ld; }
  template <class T>
  const T* at(std::int64_t offset) const {
    return view_.as<T>() + offset;
  }

 private:
  void make_copy() {
    View source = view_;
    for (int axis = 0; axis < source.shape.rank - 2; ++axis) {
      if (source.strides[axis] == 0) source.shape[axis] = 1;  // one copy of a matrix that is broadcast
    }
    View target = source;
    target.data = copy_.emplace(source.numel() * static_cast<std::int64_t>(size_of(source.dtype))).data();
    target.strides = dense_strides(source.shape);
    copy(target, source);
    view_.data = target.data;
    for (int axis = 0; axis < source.shape.rank; ++axis) {
      view_.strides[axis] = source.shape[axis] == view_.shape[axis] ? target.strides[axis] : 0;
    }
  }

  View view_;
  Layout layout_{};
  std::optional<Scratch<std::byte>> copy_;
};

cublasComputeType_t compute_type(float) {
  switch (product_precision()) {
    case ProductPrecision::f32: break;
    case ProductPrecision::tf32: return CUBLAS_COMPUTE_32F_FAST_TF32;
    case ProductPrecision::bf16: return CUBLAS_COMPUTE_32F_FAST_16BF;
  }
  return CUBLAS_COMPUTE_32F;
}
cublasComputeType_t compute_type(double) { return CUBLAS_COMPUTE_64F; }

// c is row-major with rows ld_c apart.
template <class T>
void multiply(const View& c, std::int64_t ld_c, const View& view_a, const View& view_b, double alpha, bool accumulate) {
  const Operand a(view_a), b(view_b);
  const std::int64_t m = c.shape.back(1), n = c.shape.back(0), k = view_a.shape.back(0);
  const auto batch = make_loop(batch_of(c).shape, batch_of(c), a.batch(), b.batch());
  check(std::max({m, n, k, ld_c, a.ld(), b.ld(), batch.inner_size()}) <= std::numeric_limits<int>::max(), "matmul",
        "a matrix with rows of 2^31 or more elements");
  const cublasHandle_t blas = context().blas;
  constexpr cudaDataType_t type = std::is_same_v<T, float> ? CUDA_R_32F : CUDA_R_64F;
  const T factor = static_cast<T>(alpha), before = accumulate ? T{1} : T{0};
  const auto step = batch.inner_step();
  for (std::int64_t row = 0; row < batch.rows(); ++row) {
    const auto offset = batch.row_offsets(row);
    CUBLAS_CHECK(cublasGemmStridedBatchedEx(
        blas, b.operation(), a.operation(), static_cast<int>(n), static_cast<int>(m), static_cast<int>(k), &factor,
        b.at<T>(offset[2]), type, static_cast<int>(b.ld()), step[2], a.at<T>(offset[1]), type, static_cast<int>(a.ld()),
        step[1], &before, c.as<T>() + offset[0], type, static_cast<int>(ld_c), step[0],
        static_cast<int>(batch.inner_size()), compute_type(T{}), CUBLAS_GEMM_DEFAULT));
  }
}

// c = bias on each row (+ c).
void start_with_bias(const View& c, View bias, bool accumulate) {
  const std::int64_t step = bias.strides[0];
  bias.shape = c.shape;
  bias.strides = {};
  bias.strides[c.shape.rank - 1] = step;
  if (accumulate) {
    binary(BinaryOp::add, c, c, bias);
  } else {
    copy(c, bias);
  }
}

}  // namespace

void matmul(View c, View a, View b, View bias, double alpha, bool accumulate) {
  if (c.numel() == 0) return;
  if (bias) start_with_bias(c, bias, accumulate);
  accumulate = accumulate || bias;
  if (a.shape.back() == 0) {
    if (!accumulate) fill(c, 0);
    return;
  }
  const Layout layout = *layout_of(c);
  if (layout.transposed) {
    c = transposed(c);
    a = transposed(std::exchange(b, transposed(a)));
  }
  dispatch_floating(c.dtype, [&](auto zero) { multiply<decltype(zero)>(c, layout.ld, a, b, alpha, accumulate); });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
