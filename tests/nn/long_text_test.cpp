// Tiled attention of a text so long that not all sums by key are in memory at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/score.hpp"
#include "tests/nn/encoding_cases.hpp"

namespace tally {
namespace {

// Output and gradients of q, k and v. q and k [B, 1, T, d], v [B, 1, T, e].
std::vector<Tensor> attended(const std::vector<Tensor>& operands, const Visible& visible) {
  std::vector<Tensor> leaves;
  for (const Tensor& operand : operands) {
    leaves.push_back(operand.clone());
    set_requires_grad(leaves.back());
  }
  const Tensor output = tiled_attention({leaves[0], leaves[1], leaves[2], 0.125, visible}, Score());
  backward(sum(output * operands[2]));
  return {output, gradient(leaves[0]), gradient(leaves[1]), gradient(leaves[2])};
}

// In chunks of 64 a long text is as many short ones; its rows come in 16 shares, whose sums by key take 12 MiB each.
TEST(LongText, SumsByKeyThatAreNotThereAtOnceAreThoseOfShortTexts) {
  constexpr std::int64_t length = 1 << 14, chunk = 64;
  std::vector<Tensor> whole, parts;
  for (const std::int64_t width : {64, 64, 128}) {
    const std::string name = concat("operand ", whole.size());
    whole.push_back(testing::normal_tensor(name, {1, 1, length, width}).to(DType::f32));
    parts.push_back(whole.back().reshape_view({length / chunk, 1, chunk, width}));
  }
  const std::vector<Tensor> together = attended(whole, {.chunk = chunk}), apart = attended(parts, {});
  for (std::size_t n = 0; n < together.size(); ++n) {
    const std::vector<float> x = together[n].to_vector<float>(), y = apart[n].to_vector<float>();
    ASSERT_EQ(x.size(), y.size());
    float largest = 0;
    for (std::size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x[i] - y[i]));
    EXPECT_LT(largest, 1e-5F) << n;
  }
}

}  // namespace
}  // namespace tally
