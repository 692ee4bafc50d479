// Tiled attention whose matrix products round f32 operands to TF32 or bf16: both on CUDA devices, as tensor cores do
// (cuda/runtime/instructions.hpp), and only bf16 on the CPU (core/cpu/attention/products.hpp). Reference attention
// rounds the same operands; its error must not be exceeded.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/device/backend.hpp"
#include "cuda/emulator/settings.hpp"
#include "tests/nn/score_cases.hpp"

namespace tally {
namespace tiled_products_test {

using testing::compute;
using testing::expect_same_bits;
using testing::largest;
using testing::largest_difference;
using testing::make_inputs;
using testing::normal_tensor;
using testing::Outcome;
using testing::shape_cases;
using testing::ShapeCase;
using testing::Sizes;

class TiledProducts : public testing::OnDevice {
 protected:
  void TearDown() override {
    set_matmul_precision(MatmulPrecision::f32);
    OnDevice::TearDown();
  }
};
TALLY_ON_EVERY_DEVICE(TiledProducts);

Outcome with_products(MatmulPrecision precision, const ShapeCase& one, const Sizes& sizes, bool tiled) {
  set_matmul_precision(precision);
  const Outcome outcome = compute(one, sizes, DType::f32, tiled);
  set_matmul_precision(MatmulPrecision::f32);
  return outcome;
}

// Each width of a kernel, and heads wider than those.
std::vector<Sizes> sizes_of_kernels() {
  if (testing::only_small_kernels(default_device())) {
    // A GPU takes each width: compute-sanitizer checks a kernel that runs.
    if (default_device().type == DeviceType::cuda) return {{1, 1, 35, 40, 40}, {1, 1, 35, 24, 20}, {1, 1, 35, 136, 72}};
    return {{1, 1, 35, 40, 40}};
  }
  std::vector<Sizes> sizes{{1, 2, 70, 64, 64}, {1, 2, 70, 32, 20}, {1, 1, 40, 128, 104}, {1, 1, 35, 200, 136}};
  // Several tiles of keys; heads that share them.
  if (is_cpu(default_device())) sizes.insert(sizes.end(), {{1, 2, 300, 16, 16}, {1, 4, 67, 20, 17, 2}});
  return sizes;
}

// The execution on the CPU has kernels of one score modification that round products (core/cmake/score_mods.cmake).
bool has_rounding_kernels(const ShapeCase& one) {
  if (default_device() != testing::on_cuda_host) return true;
  const auto applied = make_inputs(one, {1, 1, 2, 8, 8}, DType::f32, testing::drawn(0)).score.score_mod;
  return !applied || applied->mod->name == "contextual_table";
}

// Whether CUDA's kernels for bf16 have a loop of its own for tiles that all rows of the case attend to.
bool has_own_loop(const ShapeCase& one) {
  const Score score = make_inputs(one, {1, 1, 2, 8, 8}, DType::f32, testing::drawn(0)).score;
  return !is_cpu(default_device()) && (score.score_mod || score.softmax_rule.kind != SoftmaxRule::Kind::softmax);
}

const Sizes with_own_loop{1, 1, 200, 16, 16};

// With threads in random order, and copies that arrive as late as they may.
Outcome late_and_shuffled(MatmulPrecision precision, const ShapeCase& one, const Sizes& sizes) {
  const cuda_host::Settings before = cuda_host::settings();
  cuda_host::Settings shuffled = before;
  shuffled.schedule = cuda_host::Schedule::random;
  shuffled.seed = 3;
  shuffled.delay_streams = true;
  cuda_host::set_settings(shuffled);
  Outcome outcome = with_products(precision, one, sizes, true);
  cuda_host::set_settings(before);
  return outcome;
}

void expect_rounded(MatmulPrecision precision, double rounding) {
  const std::vector<Sizes> all_sizes = sizes_of_kernels();
  const bool on_gpu = default_device().type == DeviceType::cuda;
  std::size_t turn = 0, rounded = 0;
  for (const ShapeCase& one : shape_cases()) {
    if (!has_rounding_kernels(one)) continue;
    ++rounded;
    std::vector<Sizes> own_sizes{all_sizes.front(), all_sizes[++turn % all_sizes.size()]};
    // Rows whose windows have few of the keys.
    if (is_cpu(default_device()) && one.mask.window > 0) own_sizes.push_back({1, 1, 600, 16, 16});
    if (precision == MatmulPrecision::bf16 && has_own_loop(one)) own_sizes.push_back(with_own_loop);
    for (const Sizes& sizes : own_sizes) {
      SCOPED_TRACE(formatted("{} T {} d {}", one.name, sizes.length, sizes.width));
      const Outcome exact = compute(one, sizes, DType::f64, false);
      const Outcome tiled = with_products(precision, one, sizes, true),
                    composed = with_products(precision, one, sizes, false),
                    in_f32 = with_products(MatmulPrecision::f32, one, sizes, true);
      if (default_device() == testing::on_cuda_host && sizes.length == with_own_loop.length) {
        expect_same_bits(late_and_shuffled(precision, one, sizes), tiled);
      }
      // On a GPU cuBLAS may multiply small matrices in f32 after all, and the composed form is no measure then.
      const double own = (on_gpu ? 4 : 1) * rounding;
      const double error = largest_difference(tiled.output, exact.output);
      EXPECT_LE(error, 2 * largest_difference(composed.output, exact.output) + own * largest(exact.output));
      // It does round: f32 is closer by far.
      EXPECT_GE(error, 10 * largest_difference(in_f32.output, exact.output));
      // dl = a (da - do.o) takes do.o from the output, which is off for a whole row at once; the composed form sums a
      // da.
      const Tensor terms = abs(exact.output * normal_tensor("d_output", exact.output.shape()));
      const double of_row = largest(sum(terms, {3}));
      for (const auto& [name, expected] : exact.gradients) {
        // Rounding may decide on which side of an integer a position is, and most gradients jump there. Gradients of a
        // table's entries do not: at an integer, the weights of both its neighbours are 0.
        if (one.kinks && !(one.name.starts_with("table") && name == "z")) continue;
        const bool by_distance = name == "slope" || name == "slopes" || name == "rise";  // rows times up to T
        const bool of_all_rows = name == "height";  // a number of the head: the sum of all rows' roundings
        const auto length = static_cast<double>(sizes.length);
        const double reach = by_distance ? length : of_all_rows ? std::sqrt(length) : 1;
        EXPECT_LE(
            largest_difference(tiled.gradients.at(name), expected),
            3 * largest_difference(composed.gradients.at(name), expected) + own * (largest(expected) + of_row * reach))
            << name;
      }
    }
  }
  EXPECT_GT(rounded, shape_cases().size() / 3);
}

TEST_P(TiledProducts, RoundToTf32LikeThoseOfTheComposedForm) {
  if (GetParam() == Device{}) GTEST_SKIP() << "products of the CPU know bf16 alone";
  expect_rounded(MatmulPrecision::tf32, 0x1p-11);
}
TEST_P(TiledProducts, RoundToBf16LikeThoseOfTheComposedForm) { expect_rounded(MatmulPrecision::bf16, 0x1p-8); }

}  // namespace tiled_products_test
}  // namespace tally
