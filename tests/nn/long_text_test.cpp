// Tiled attention of a text so long that not all sums by key are in memory at once.
#include <gtest/gtest.h>

#include "autograd/score.hpp"
#include "tests/nn/encoding_cases.hpp"

namespace tally::long_text_test {

constexpr std::int64_t length = 1 << 14, block = 64;

std::vector<Tensor> leaves_of(std::int64_t key_width, std::int64_t value_width) {
  std::vector<Tensor> leaves;
  for (const std::int64_t width : {key_width, key_width, value_width}) {
    const std::string name = formatted("operand {}", leaves.size());
    leaves.push_back(testing::normal_tensor(name, {1, 1, length, width}).to(DType::f32));
    set_requires_grad(leaves.back());
  }
  return leaves;
}

// The rows of the output without the first block, then the gradients of the leaves.
std::vector<Tensor> with_gradients(const Tensor& output, const std::vector<Tensor>& leaves) {
  const Tensor rows = slice(reshape(output, {1, 1, length, output.size(3)}), 2, block, length);
  backward(sum(rows * testing::normal_tensor("d", rows.shape()).to(DType::f32)));
  return {rows, gradient(leaves[0]), gradient(leaves[1]), gradient(leaves[2])};
}

void expect_near(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  for (std::size_t n = 0; n < a.size(); ++n) {
    const std::vector<float> x = a[n].to_vector<float>(), y = b[n].to_vector<float>();
    ASSERT_EQ(x.size(), y.size());
    float largest = 0;
    for (std::size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x[i] - y[i]));
    EXPECT_LT(largest, 1e-5F) << n;
  }
}

// Texts of two blocks each, of x [1, 1, T, w]: a block and the one before it.
Tensor pairs_of_blocks(const Tensor& x) {
  const Tensor blocks = reshape(x, {length / block, 1, block, x.size(3)});
  const Tensor before = concat(
      {Tensor::zeros({1, 1, block, x.size(3)}, x.dtype(), x.device()), slice(blocks, 0, 0, length / block - 1)}, 0);
  return concat({before, blocks}, 2);
}

// A window of one block reaches only into the block before, so the rows equal the rows of many short texts. They come
// in 16 shares, each with the rows of one part of the text. The sums by key of a share take 12 MiB, and ten shares run
// at once.
TEST(LongText, InAWindowIsAsManyShortTexts) {
  const AttentionMask window{.window = block};
  const std::vector<Tensor> whole = leaves_of(64, 128), parts = leaves_of(64, 128);
  const Tensor together = tiled_attention({whole[0], whole[1], whole[2], 0.125, window}, Score());
  const Tensor apart = tiled_attention(
      {pairs_of_blocks(parts[0]), pairs_of_blocks(parts[1]), pairs_of_blocks(parts[2]), 0.125, window}, Score());
  expect_near(with_gradients(together, whole), with_gradients(slice(apart, 2, block, 2 * block), parts));
}

}  // namespace tally::long_text_test
