// Matmuls, also batched, by cuBLAS: c[..., M, N] = alpha a[..., M, K] b[..., K, N], + bias [N] on each row, + residual.
//
// cuBLAS supports only column-major matrices. A row-major matrix is the transpose of a column-major one in the same
// memory, so c = a b is computed as c^T = b^T a^T. Batch axes are merged; the innermost remaining one is cuBLAS's
// batch.
//
// cublasLt adds a bias, adds a residual that is not c, or sums the rows of a, in the kernel of the matmul. Without an
// algorithm for that, c begins as bias + residual, and the matmul adds to it. The bias must have the type of c.
// cublasLt's GELU and its derivative are not used: they are the approximation by tanh; tally's `gelu` is x Phi(x) with
// erf.
#include <map>
#include <optional>
#include <tuple>

#include "core/device/backend.hpp"
#include "core/error.hpp"
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
  Strides steps;
  steps[c.shape.rank - 1] = bias.strides[bias.shape.rank - 1];
  if (bias.shape.rank == 2) steps[0] = bias.strides[0];
  bias.shape = c.shape;
  bias.strides = steps;
  residual ? binary(BinaryOp::add, c, residual, bias) : copy(c, bias);
}

// The alignment in bytes that algorithms of cublasLt may assume for every address: their kernels load 16 bytes at once.
constexpr std::uint32_t alignment = 16;
bool is_aligned(const View& x) { return reinterpret_cast<std::uintptr_t>(x.data) % alignment == 0; }

template <class Value>
void set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof(value)));
}

// The matrices of a batch: their number, and the elements from one to the next.
std::int32_t count_of(const View& x) { return x.shape.rank == 3 ? static_cast<std::int32_t>(x.shape[0]) : 1; }
std::int64_t step_of(const View& x) { return x.shape.rank == 3 ? x.strides[0] : 0; }

// The matrices as cublasLt describes them, column-major.
cublasLtMatrixLayoutOpaque_t describe(const View& x) {
  const Layout layout = *layout_of(x);
  const auto columns = static_cast<std::uint64_t>(x.shape.back(1)), rows = static_cast<std::uint64_t>(x.shape.back(0));
  cublasLtMatrixLayoutOpaque_t matrix;
  CUBLAS_CHECK(cublasLtMatrixLayoutInit(&matrix, x.dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F,
                                        layout.transposed ? columns : rows, layout.transposed ? rows : columns,
                                        layout.ld));
  if (x.shape.rank == 3) {
    const auto set_attribute = [&](cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
      CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(&matrix, attribute, &value, sizeof(value)));
    };
    set_attribute(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count_of(x));
    set_attribute(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step_of(x));
  }
  return matrix;
}

// cublasLt's first choice, or nothing if it has no algorithm. With split-K, a step after the matmul may reduce partial
// sums in the type of the computation, in a fixed order. The other schemes are excluded: one adds to the output while
// blocks finish, one rounds partial sums to the output's type.
std::optional<cublasLtMatmulAlgo_t> choose(cublasLtMatmulDescOpaque_t& operation, cublasLtMatrixLayoutOpaque_t& a,
                                           cublasLtMatrixLayoutOpaque_t& b, cublasLtMatrixLayoutOpaque_t& c) {
  cublasLtMatmulPreferenceOpaque_t preference;
  CUBLAS_CHECK(cublasLtMatmulPreferenceInit(&preference));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{context().workspace_bytes});
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    prefer(attribute, alignment);
  }
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const auto handle = reinterpret_cast<cublasLtHandle_t>(context().blas);
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, &operation, &a, &b, &c, &c, &preference, 1, &result, &found);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0 || result.state != CUBLAS_STATUS_SUCCESS) return std::nullopt;
  return result.algo;
}

// c = alpha a b, + bias, + residual, and end.row_sums, by one kernel of cublasLt. Returns false without computing
// anything if that is not possible, and true without computing anything if only_asks.
bool multiply_fused(const View& c, const View& a, const View& b, const Epilogue& end, bool only_asks = false) {
  const View& vector = end.row_sums ? end.row_sums : end.bias;
  const bool in_bf16 = c.dtype == DType::bf16, one = c.shape.rank == 2;
  // c must be dense: some older versions omit the bias if there are gaps between rows of one element.
  if (c.dtype == DType::f64 || c.shape.rank > 3 || !c.dense() || c.numel() == 0 || a.shape.back() == 0) return false;
  if ((in_bf16 || !one) && (end.row_sums || end.residual)) return false;
  if (vector && ((vector.numel() > 1 && !vector.dense()) || vector.dtype != c.dtype)) return false;
  for (const View& x : {a, b, c, vector, end.residual}) {
    if (!is_aligned(x) || (!one && step_of(x) * static_cast<std::int64_t>(size_of(x.dtype)) % alignment != 0))
      return false;
  }
  const cublasComputeType_t compute = a.dtype == DType::bf16 ? CUBLAS_COMPUTE_32F : compute_type(float{});
  const cublasLtEpilogue_t epilogue = end.row_sums ? CUBLASLT_EPILOGUE_BGRADB
                                      : end.bias   ? CUBLASLT_EPILOGUE_BIAS
                                                   : CUBLASLT_EPILOGUE_DEFAULT;
  cublasLtMatmulDescOpaque_t operation;
  if (cublasLtMatmulDescInit(&operation, compute, CUDA_R_32F) != CUBLAS_STATUS_SUCCESS) return false;  // no cublasLt
  const Layout layout_a = *layout_of(a), layout_b = *layout_of(b);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, operation_of(layout_b));
  set(operation, CUBLASLT_MATMUL_DESC_TRANSB, operation_of(layout_a));
  set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (vector.shape.rank == 2) set(operation, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, vector.strides[0]);
  auto matrix_a = describe(a), matrix_b = describe(b), matrix_c = describe(c);

  // All that the choice depends on, so that the same matmul has the same bits each time.
  const std::tuple problem(context().index, epilogue, compute, a.dtype, c.dtype, c.shape.back(1), c.shape.back(0),
                           a.shape.back(0), layout_a.transposed, layout_a.ld, layout_b.transposed, layout_b.ld,
                           count_of(c), step_of(a), step_of(b), vector.shape.rank);
  thread_local std::map<std::remove_const_t<decltype(problem)>, std::optional<cublasLtMatmulAlgo_t>> choices;
  const auto [choice, is_new] = choices.try_emplace(problem);
  if (is_new) {
    // The search uses only the alignment of this address.
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, std::uintptr_t{alignment});
    choice->second = choose(operation, matrix_b, matrix_a, matrix_c);
  }
  if (!choice->second || only_asks) return choice->second.has_value();

  const Context& on = context();
  const float factor = static_cast<float>(end.alpha), before = end.residual ? 1.0f : 0.0f;
  set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector.data);
  CUBLAS_CHECK(cublasLtMatmul(reinterpret_cast<cublasLtHandle_t>(on.blas), &operation, &factor, b.data, &matrix_b,
                              a.data, &matrix_a, &before, end.residual ? end.residual.data : c.data, &matrix_c, c.data,
                              &matrix_c, &*choice->second, on.workspace, on.workspace_bytes, on.stream));
  return true;
}

}  // namespace

std::int64_t matmul_workspace(View, View) { return 0; }
std::int64_t matmul_sums_rows(View c, View a, View b) {
  const View sums{c.data, c.dtype, {c.shape.back(1)}, {{1}}};
  return multiply_fused(c, a, b, {.row_sums = sums}, true) ? 1 : 0;
}

void matmul(View c, View a, View b, const Epilogue& end, void*) {
  if (c.numel() == 0) return;
  const bool is_there = end.residual && end.residual.data == c.data && !end.bias, add = end.residual || end.bias;
  if (((add && !is_there) || end.row_sums) && multiply_fused(c, a, b, end)) return;
  check(!end.row_sums, "matmul", "cublasLt cannot sum the rows of these operands");
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
