// Matmuls on tensor cores, lane by lane. The host's mma.sync fetches operands from the registers that PTX prescribes
// ("Matrix fragments for mma.m16n8k8" and "mma.m16n8k16"). So an operand in the wrong lane, register or half gives
// another product. The results are in the registers of products without tensor cores.
#include "cuda/runtime/instructions.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/cuda/kernel_bench.hpp"

namespace tally::cuda_host {
namespace {

// The forms of attention's matmuls: columns of a thread (a warp's tile has 16 rows), size of k, and the strides of both
// factors.
struct Form {
  int columns, depth, ld_a, ld_b;
  constexpr int lines() const { return columns * row_lanes; }  // columns of the product
};

// y: [2][16][lines], the product with and without tensor cores.
template <MatmulPrecision precision, bool a_along_k, bool b_along_k, Form form>
__global__ void products_kernel(float* y, const float* a, const float* b) {
  const Factor<float, a_along_k> x{a, form.ld_a};
  const Factor<float, b_along_k> z{b, form.ld_b};
  constexpr auto columns = static_cast<std::size_t>(form.columns);
  float with[2][columns] = {}, without[2][columns] = {};
  detail::multiply_on_tensor_cores<precision>(with, x, z, form.depth);
  detail::multiply_scalars<precision>(without, x, z, form.depth);
  for (int r = 0; r < 2; ++r) {
    for (int c = 0; c < form.columns; ++c) {
      y[tile_row(r) * form.lines() + tile_column(c)] = with[r][c];
      y[(warp_rows + tile_row(r)) * form.lines() + tile_column(c)] = without[r][c];
    }
  }
}

Tensor numbers(std::int64_t count, double start) {
  std::vector<double> values;
  for (std::int64_t n = 0; n < count; ++n) values.push_back(std::sin(start + 1.7 * static_cast<double>(n)));
  return Tensor::from(values, {count}).to(DType::f32).to(device);
}

template <MatmulPrecision precision, bool a_along_k, bool b_along_k, Form form>
void expect_product() {
  SCOPED_TRACE(
      formatted("{} columns of a thread, depth {}, ld {} and {}", form.columns, form.depth, form.ld_a, form.ld_b));
  constexpr int lines = form.lines(), depth = form.depth;
  const Tensor a = numbers((a_along_k ? warp_rows : depth) * form.ld_a, 1);
  const Tensor b = numbers((b_along_k ? lines : depth) * form.ld_b, 2);
  const std::vector<float> x = a.to_vector<float>(), z = b.to_vector<float>();
  for (const Settings& settings : schedules()) {
    const WithSettings with(settings);
    const Tensor y = Tensor::zeros({2 * warp_rows * lines}, DType::f32, device);
    launch(products_kernel<precision, a_along_k, b_along_k, form>, 1, 32, 0, stream(), y.view().as<float>(),
           a.view().as<float>(), b.view().as<float>());
    const std::vector<float> found = y.to_vector<float>();
    for (int i = 0; i < warp_rows; ++i) {
      for (int j = 0; j < lines; ++j) {
        double expected = 0;
        for (int k = 0; k < depth; ++k) {
          const float own = x[static_cast<std::size_t>(a_along_k ? i * form.ld_a + k : k * form.ld_a + i)];
          const float other = z[static_cast<std::size_t>(b_along_k ? j * form.ld_b + k : k * form.ld_b + j)];
          expected += static_cast<double>(rounded<precision>(own)) * static_cast<double>(rounded<precision>(other));
        }
        constexpr double rounding = 3e-5;  // of a sum of 128 terms in f32; bf16 loses a thousand times as much
        EXPECT_NEAR(found[static_cast<std::size_t>(i * lines + j)], expected, rounding) << i << " " << j;
        EXPECT_NEAR(found[static_cast<std::size_t>((warp_rows + i) * lines + j)], expected, rounding) << i << " " << j;
      }
    }
  }
}

// Scores of queries and keys, weights times values, and backward's sums over rows, for heads of 32, 64 and 128.
template <MatmulPrecision precision>
void expect_products() {
  expect_product<precision, true, true, Form{8, 32, 36, 36}>();
  expect_product<precision, true, true, Form{8, 64, 68, 68}>();
  expect_product<precision, true, true, Form{8, 128, 132, 132}>();
  expect_product<precision, true, false, Form{8, 32, 36, 36}>();
  expect_product<precision, true, false, Form{16, 32, 36, 68}>();
  expect_product<precision, true, false, Form{32, 32, 36, 132}>();
  expect_product<precision, false, false, Form{8, 32, 36, 36}>();
  expect_product<precision, false, false, Form{8, 64, 36, 68}>();
  expect_product<precision, false, false, Form{8, 64, 36, 132}>();
  expect_product<precision, false, true, Form{8, 48, 16, 52}>();
}

TEST(TensorCores, MultiplyWhatEachLaneHoldsInTf32) { expect_products<MatmulPrecision::tf32>(); }
TEST(TensorCores, MultiplyWhatEachLaneHoldsInBf16) { expect_products<MatmulPrecision::bf16>(); }

}  // namespace
}  // namespace tally::cuda_host
