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

}  // namespace
}  // namespace tally::cuda_host
