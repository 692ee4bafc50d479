// cuBLAS calls on the emulator: wrong arguments are refused, and operands are rounded to TF32 or bf16 if that is
// allowed.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/device/backend.hpp"
#include "core/device/kernels.hpp"
#include "core/math/bfloat16.hpp"
#include "cuda/emulator/cublas.hpp"
#include "tests/cuda/kernel_bench.hpp"

namespace tally::cuda_host {
namespace {

std::vector<float> product(const std::vector<float>& a, const std::vector<float>& b) {
  const Tensor x = Tensor::from(a, {2, 2}, device), y = Tensor::from(b, {2, 2}, device);
  const Tensor z = Tensor::empty({2, 2}, DType::f32, device);
  kernels(device).matmul(z.view(), x.view(), y.view(), {}, nullptr);
  return z.to_vector<float>();
}

TEST(Cublas, RoundsOnlyWhereThatIsAllowed) {
  // 2^-10 is the last place of TF32 for numbers near 1; half of it rounds away from zero, less than half is lost.
  const float last = 0x1p-10f, half = 0x1p-11f, less = 0x1p-12f;
  const std::vector<float> a{1 + last, 1 + half, -1 - half, 1 + less}, one{1, 0, 0, 1};
  EXPECT_EQ(product(a, one), a);
  EXPECT_EQ(product(one, a), a);
  set_matmul_precision(MatmulPrecision::tf32);
  const std::vector<float> rounded{1 + last, 1 + last, -1 - last, 1};
  EXPECT_EQ(product(a, one), rounded);
  EXPECT_EQ(product(one, a), rounded);
  EXPECT_TRUE(std::isinf(product({INFINITY, 0, 0, 1}, one)[0]));
  // bf16 has 7 bits, and half of the last one is rounded to the even neighbour.
  set_matmul_precision(MatmulPrecision::bf16);
  const std::vector<float> wide{1 + 0x1p-7f, 1 + 0x1p-8f, 1 + 0x3p-8f, -1 - 0x1.1p-8f};
  const std::vector<float> even{1 + 0x1p-7f, 1, 1 + 0x1p-6f, -1 - 0x1p-7f};
  EXPECT_EQ(product(wide, one), even);
  EXPECT_EQ(product(one, wide), even);
  set_matmul_precision(MatmulPrecision::f32);
  EXPECT_EQ(product(a, one), a);
}

// A result in bf16 is the sum rounded once, at its end.
TEST(Cublas, WritesBf16OfWhatIsThat) {
  set_matmul_precision(MatmulPrecision::bf16);
  const Tensor x = Tensor::from(std::vector<float>{1, 0x1p-8f, 1, 0x1.8p-7f}, {2, 2}, device).to(DType::bf16);
  const Tensor y = Tensor::from(std::vector<float>{1, -2, 1, 3}, {2, 2}, device).to(DType::bf16);
  const Tensor z = Tensor::full({2, 2}, NAN, DType::bf16, device);
  kernels(device).matmul(z.view(), x.view(), y.view(), {.alpha = 2}, nullptr);
  const std::vector<float> sums{2 + 0x1p-7f, -4 + 0x3p-7f, 2 + 0x3p-7f, -4 + 0x9p-7f};
  std::vector<float> expected;
  for (const float sum : sums) expected.push_back(static_cast<float>(Bfloat16(sum)));
  EXPECT_EQ(z.to(DType::f32).to_vector<float>(), expected);
  set_matmul_precision(MatmulPrecision::f32);
}

TEST(Cublas, RefusesWhatDoesNotFitItsMemory) {
  cublasHandle_t blas = nullptr;
  ASSERT_EQ(cublasCreate(&blas), CUBLAS_STATUS_SUCCESS);
  const Tensor x = Tensor::zeros({16, 16}, DType::f32, device);
  float* const data = x.view().as<float>();
  const float one = 1;
  const auto multiply = [&](int m, int n, int k, int ld, const float* a) {
    return cublasGemmStridedBatchedEx(blas, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, a, CUDA_R_32F, ld, 0, data,
                                      CUDA_R_32F, 16, 0, &one, data, CUDA_R_32F, 16, 0, 1, CUBLAS_COMPUTE_32F,
                                      CUBLAS_GEMM_DEFAULT);
  };
  EXPECT_EQ(multiply(4, 4, 4, 16, data), CUBLAS_STATUS_NOT_INITIALIZED);  // no stream
  ASSERT_EQ(cublasSetStream(blas, stream()), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(16, 16, 16, 16, data), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(16, 16, 16, 15, data), CUBLAS_STATUS_INVALID_VALUE);  // rows are longer than that
  EXPECT_EQ(multiply(16, 16, 17, 16, data), CUBLAS_STATUS_INVALID_VALUE);  // a column too many
  EXPECT_EQ(multiply(-1, 16, 16, 16, data), CUBLAS_STATUS_INVALID_VALUE);
  const std::vector<float> host(256);
  EXPECT_EQ(multiply(16, 16, 16, 16, host.data()), CUBLAS_STATUS_INVALID_VALUE);  // not the device's memory
  EXPECT_EQ(cublasDestroy(blas), CUBLAS_STATUS_SUCCESS);
}

Tensor numbers(const Shape& shape, DType type) {
  std::vector<float> values;
  for (int i = 0; i < shape.numel(); ++i) values.push_back(static_cast<float>((i * 5 + 3) % 11) - 4);
  return Tensor::from(values, shape, device).to(type);
}
std::vector<double> values_of(const Tensor& x) { return x.to(DType::f64).to_vector<double>(); }

// By one kernel, or by several if an address is not aligned or the type is f64. All numbers are whole, so both are
// exact.
TEST(CublasLt, AddsBiasAndResidualAndSumsRows) {
  for (const DType type : {DType::f32, DType::bf16, DType::f64}) {
    SCOPED_TRACE(name_of(type));
    if (type == DType::bf16) set_matmul_precision(MatmulPrecision::bf16);
    const DType wide = type == DType::f64 ? type : DType::f32;
    const Tensor a = numbers({5, 7}, type), b = numbers({7, 6}, type), residual = numbers({5, 6}, wide);
    const Tensor bias = numbers({6}, wide), shifted = numbers({7}, wide).detached_strided({6}, {{1}}, 1);
    const auto expect = [&](const Epilogue& end, const Tensor& of_bias, bool fused) {
      std::vector<double> expected(30);
      const std::vector<double> x = values_of(a), y = values_of(b), z = values_of(residual);
      for (std::size_t i = 0; i < 30; ++i) {
        for (std::size_t k = 0; k < 7; ++k) expected[i] += 2 * x[i / 6 * 7 + k] * y[k * 6 + i % 6];
        if (end.bias) expected[i] += values_of(of_bias)[i % 6];
        if (end.residual) expected[i] += z[i];
      }
      const Tensor c = Tensor::full({5, 6}, NAN, wide, device);
      const std::uint64_t threads = started_threads();
      kernels(device).matmul(c.view(), a.view(), b.view(), end, nullptr);
      EXPECT_EQ(started_threads() == threads, fused);
      EXPECT_EQ(values_of(c), expected);
    };
    const bool fuses = type != DType::f64;
    expect({.alpha = 2, .residual = residual.view()}, {}, fuses);
    for (const Tensor& by : {bias, shifted}) {
      expect({.alpha = 2, .bias = by.view()}, by, fuses && by.offset() == 0);
      expect({.alpha = 2, .bias = by.view(), .residual = residual.view()}, by, fuses && by.offset() == 0);
    }
    ASSERT_EQ(kernels(device).matmul_sums_rows(residual.view(), a.view(), b.view()), fuses ? 1 : 0);
    if (fuses) {
      const Tensor sums = Tensor::full({5}, NAN, DType::f32, device);
      expect({.alpha = 2, .row_sums = sums.view()}, {}, true);
      std::vector<double> expected(5);
      for (std::size_t i = 0; i < 35; ++i) expected[i / 7] += values_of(a)[i];
      EXPECT_EQ(values_of(sums), expected);
    }
    set_matmul_precision(MatmulPrecision::f32);
  }
}

TEST(CublasLt, RefusesWhatCublasLtRefuses) {
  const Context& on = use_device(0);
  const Tensor x = Tensor::zeros({16, 16}, DType::f32, device), y = Tensor::zeros({2, 16, 16}, DType::f32, device);
  float *const a = x.view().as<float>(), *const d = y.view().as<float>();
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t matrix, wide;
  cublasLtMatmulPreferenceOpaque_t preference;
  cublasLtMatmulHeuristicResult_t result;
  ASSERT_EQ(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasLtMatrixLayoutInit(&matrix, CUDA_R_32F, 8, 8, 16), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasLtMatrixLayoutInit(&wide, CUDA_R_64F, 8, 8, 16), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasLtMatmulPreferenceInit(&preference), CUBLAS_STATUS_SUCCESS);
  const std::uint32_t alignment = 16;
  EXPECT_EQ(
      cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, 8),
      CUBLAS_STATUS_INVALID_VALUE);  // not the attribute's size
  for (const int of : {5, 6, 7, 8}) {
    const auto attribute = static_cast<cublasLtMatmulPreferenceAttributes_t>(of);
    ASSERT_EQ(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &alignment, 4), CUBLAS_STATUS_SUCCESS);
  }
  const auto choose = [&](cublasLtMatrixLayout_t of_a) {
    int found = 0;
    return cublasLtMatmulAlgoGetHeuristic(on.blas, &operation, of_a, &matrix, &matrix, &matrix, &preference, 1, &result,
                                          &found);
  };
  const auto multiply = [&](const float* of_a, const float* c, std::size_t bytes) {
    const float one = 1;
    return cublasLtMatmul(on.blas, &operation, &one, of_a, &matrix, a, &matrix, &one, c, &matrix, d, &matrix,
                          &result.algo, on.workspace, bytes, on.stream);
  };
  EXPECT_EQ(choose(&wide), CUBLAS_STATUS_NOT_SUPPORTED);
  ASSERT_EQ(choose(&matrix), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(a, d, 0), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(a + 4, d, 0), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(a + 1, d, 0), CUBLAS_STATUS_INVALID_VALUE);                 // not aligned
  EXPECT_EQ(multiply(a, d + 256, 0), CUBLAS_STATUS_SUCCESS);                     // c is another matrix
  EXPECT_EQ(multiply(a, d + 16, 0), CUBLAS_STATUS_INVALID_VALUE);                // c overlaps d
  EXPECT_EQ(multiply(a, d, std::size_t{1} << 40), CUBLAS_STATUS_INVALID_VALUE);  // the workspace is smaller
  const cublasLtEpilogue_t bias = CUBLASLT_EPILOGUE_BIAS;
  ASSERT_EQ(cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &bias, 4), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(a, d, 0), CUBLAS_STATUS_INVALID_VALUE);  // another operation than the algorithm's
  EXPECT_EQ(choose(&matrix), CUBLAS_STATUS_INVALID_VALUE);    // no address of a bias
  for (float* const address : {a, a + 252, a + 1}) {
    const float* aligned = a;
    ASSERT_EQ(cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &aligned, 8),
              CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(choose(&matrix), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &address, 8),
              CUBLAS_STATUS_SUCCESS);
    // Past the end of its block, and not aligned.
    EXPECT_EQ(multiply(a, d, 0), address == a ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE);
  }
}

}  // namespace
}  // namespace tally::cuda_host
