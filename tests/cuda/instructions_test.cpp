// Products on tensor cores, lane by lane: the host's mma.sync fetches operands from the registers in which PTX wants
// them
// ("Matrix fragments for mma.m16n8k8" and "mma.m16n8k16"), so that an operand in the wrong lane, register or half gives
// another product. Its results are in the registers of products without tensor cores.
#include "cuda/instructions.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/cuda/kernel_bench.hpp"

namespace tally::cuda_host {
namespace {

constexpr int depth = 48, lines = 32;  // of k, and of columns; a warp's tile has 16 rows
constexpr int columns = lines / row_lanes;

// y: [2][16][lines], the product with and without tensor cores.
template <ProductPrecision precision, bool a_along_k, bool b_along_k>
__global__ void products_kernel(float* y, const float* a, const float* b) {
  const Factor<float, a_along_k> x{a, a_along_k ? depth : warp_rows};
  const Factor<float, b_along_k> z{b, b_along_k ? depth : lines};
  float with[2][columns] = {}, without[2][columns] = {};
  detail::multiply_on_tensor_cores<precision>(with, x, z, depth);
  detail::multiply_scalars<precision>(without, x, z, depth);
  for (int r = 0; r < 2; ++r) {
    for (int c = 0; c < columns; ++c) {
      y[tile_row(r) * lines + tile_column(c)] = with[r][c];
      y[(warp_rows + tile_row(r)) * lines + tile_column(c)] = without[r][c];
    }
  }
}

Tensor numbers(std::int64_t count, double start) {
  std::vector<double> values;
  for (std::int64_t n = 0; n < count; ++n) values.push_back(std::sin(start + 1.7 * static_cast<double>(n)));
  return Tensor::from(values, {count}).to(DType::f32).to(device);
}

template <ProductPrecision precision, bool a_along_k, bool b_along_k>
void expect_product() {
  const Tensor a = numbers(warp_rows * depth, 1), b = numbers(lines * depth, 2);
  const std::vector<float> x = a.to_vector<float>(), z = b.to_vector<float>();
  for (const Settings& settings : schedules()) {
    const WithSettings with(settings);
    const Tensor y = Tensor::zeros({2 * warp_rows * lines}, DType::f32, device);
    launch(products_kernel<precision, a_along_k, b_along_k>, 1, 32, 0, stream(), y.view().as<float>(),
           a.view().as<float>(), b.view().as<float>());
    const std::vector<float> found = y.to_vector<float>();
    for (int i = 0; i < warp_rows; ++i) {
      for (int j = 0; j < lines; ++j) {
        double expected = 0;
        for (int k = 0; k < depth; ++k) {
          const float own = x[static_cast<std::size_t>(a_along_k ? i * depth + k : k * warp_rows + i)];
          const float other = z[static_cast<std::size_t>(b_along_k ? j * depth + k : k * lines + j)];
          expected += static_cast<double>(rounded<precision>(own)) * static_cast<double>(rounded<precision>(other));
        }
        constexpr double rounding = 1e-5;  // of a sum of 48 terms in f32; bf16 loses a thousand times as much
        EXPECT_NEAR(found[static_cast<std::size_t>(i * lines + j)], expected, rounding) << i << " " << j;
        EXPECT_NEAR(found[static_cast<std::size_t>((warp_rows + i) * lines + j)], expected, rounding) << i << " " << j;
      }
    }
  }
}

template <ProductPrecision precision>
void expect_products() {
  expect_product<precision, true, true>();
  expect_product<precision, true, false>();
  expect_product<precision, false, true>();
  expect_product<precision, false, false>();
}

TEST(TensorCores, MultiplyWhatEachLaneHoldsInTf32) { expect_products<ProductPrecision::tf32>(); }
TEST(TensorCores, MultiplyWhatEachLaneHoldsInBf16) { expect_products<ProductPrecision::bf16>(); }

}  // namespace
}  // namespace tally::cuda_host
