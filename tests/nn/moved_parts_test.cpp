// Queries that move: attention part by part of the rows, against the composed form; peak memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/cpu/parallel.hpp"
#include "tests/nn/score_cases.hpp"
#include "tests/nn/share.hpp"

namespace tally {
namespace moved_parts_test {

using testing::compute;
using testing::largest;
using testing::largest_difference;
using testing::moved_cases;
using testing::Outcome;
using testing::ShapeCase;
using testing::Sizes;

class MovedParts : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(MovedParts);

// Four blocks of rows, the last one of 9.
constexpr std::int64_t length = 3 * moved_block + 9;
// Of two heads: a block by itself, and two where a window lets them see few keys.
constexpr std::int64_t one_block = 1, some_blocks = 2 * 2 * moved_block * 130;

// Rounding of products that walk on over four blocks, and of sums of as many terms as there are keys.
void expect_the_same(const Outcome& found, const Outcome& expected) {
  EXPECT_LE(largest_difference(found.output, expected.output), 1e-12 * largest(expected.output));
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients) {
    SCOPED_TRACE(name);
    EXPECT_LE(largest_difference(found.gradients.at(name), gradient), 1e-12 * std::max(1e-3, largest(gradient)));
  }
}

void expect_the_composed_form(double dropout) {
  if (testing::only_small_kernels(default_device())) GTEST_SKIP() << "under ThreadSanitizer";
  const std::vector<ShapeCase> cases = moved_cases();
  for (std::size_t n = 0; n < cases.size(); ++n) {
    // Where heads share their keys, too.
    const Sizes sizes{n % 3 == 0 ? 2 : 1, 2, length, 8, 5, n % 2 == 0 ? 1 : 2};
    SCOPED_TRACE(cases[n].name);
    const Outcome expected = compute(cases[n], sizes, DType::f64, false, dropout);
    for (const std::int64_t at_once : {one_block, some_blocks}) {
      expect_the_same(compute(cases[n], sizes, DType::f64, true, dropout, testing::drawn(0), at_once), expected);
    }
  }
}

TEST_P(MovedParts, AreTheComposedForm) { expect_the_composed_form(0); }
TEST_P(MovedParts, DropTheWeightsOfTheWholeText) { expect_the_composed_form(0.25); }

TEST_P(MovedParts, HaveTheSameBitsForAnyNumberOfThreads) {
  if (testing::only_small_kernels(GetParam()) || testing::repeats_show_nothing()) GTEST_SKIP() << "under a sanitizer";
  const int before = thread_count();
  for (const ShapeCase& one : testing::every(testing::takes_a_share() ? 3 : 1, moved_cases())) {
    SCOPED_TRACE(one.name);
    const auto of_threads = [&](int threads) {
      set_thread_count(threads);
      return compute(one, {2, 2, length, 8, 8}, DType::f32, true, 0.25, testing::drawn(0), some_blocks);
    };
    const Outcome alone = of_threads(1), three = of_threads(3);
    EXPECT_EQ(three.output.to_vector<float>(), alone.output.to_vector<float>());
    for (const auto& [name, value] : alone.gradients) {
      EXPECT_EQ(three.gradients.at(name).to_vector<float>(), value.to_vector<float>()) << name;
    }
  }
  set_thread_count(before);
}

TEST_P(MovedParts, OfNoTokensAreNothing) {
  const auto plain = moved_cases().front();
  for (const Sizes& none : {Sizes{0, 2, 5, 4, 4}, Sizes{1, 2, 0, 4, 4}}) {
    const Outcome found = compute(plain, none, DType::f64, true);
    EXPECT_EQ(found.output.numel(), 0);
    for (const auto& [name, value] : found.gradients) EXPECT_EQ(largest(value), 0) << name;
  }
}

// Peak of forward and backward, counted where nothing is computed.
double counted(const ShapeCase& one, std::int64_t tokens, std::int64_t at_once) {
  set_default_device(meta_of(testing::on_cuda_host));
  const std::size_t before = memory_counters(default_device()).live_bytes;
  reset_peak_memory(default_device());
  testing::Inputs inputs =
      testing::make_inputs(one, {1, 2, tokens, 64, 64}, DType::f32, [](const std::string&, const Shape& shape, double) {
        return Tensor::empty(shape, DType::f32, default_device());
      });
  inputs.operands.products_at_once = at_once;
  const Tensor output = tiled_attention(inputs.operands, inputs.score);
  backward(output, output.detach());
  const auto peak = static_cast<double>(memory_counters(default_device()).peak_bytes - before);
  set_default_device({});
  return peak;
}

// Memory is linear in the number of tokens, for small and large parts.
TEST(MovedPartsInMemory, GrowWithTheLength) {
  for (const ShapeCase& one : moved_cases()) {
    SCOPED_TRACE(one.name);
    // A dense one, and one by distance whose every row has a factor of its own.
    if (one.name == "moved_and_every_bias" || one.name == "moved_and_row_factor") continue;
    for (const std::int64_t at_once : {std::int64_t{1}, std::int64_t{1} << 20}) {
      const double few = counted(one, 2048, at_once), many = counted(one, 4096, at_once);
      EXPECT_LT(many / few, 2.05);
    }
  }
}

}  // namespace moved_parts_test
}  // namespace tally
