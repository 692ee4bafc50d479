// The memory of the attention module. Its values: the reference values of every encoding (tests/nn/reference_test.cpp).
#include "nn/attention/attention.hpp"

#include <gtest/gtest.h>

#include "autograd/node.hpp"
#include "core/device/allocator.hpp"
#include "nn/model.hpp"

namespace tally {
namespace attention_test {

TEST(Attention, SplitsHeadsWithoutACopy) {
  const Tensor x = Tensor::zeros({2, 3, 8});
  const Tensor heads = split_heads(x, 2);
  EXPECT_EQ(to_text(heads.shape()), "[2, 2, 3, 4]");
  EXPECT_EQ(heads.storage(), x.storage());
  EXPECT_EQ(to_text(merge_heads(heads).shape()), "[2, 3, 8]");
}

// Materialised attention saves only one of its [T, T] tensors for backward, the weights.
TEST(Attention, KeepsOneSquareTensor) {
  const Initializer start(4, StartValues::gpt2);
  ModelOptions model;
  model.width = 8;
  model.heads = 1;
  model.attention = "composed";
  const Attention attention(start, model);
  EncodingSetup setup;
  setup.heads = setup.key_heads = 1;
  const LayerEncoding none = EncodingChoice::parse("none").make(setup);
  const Tensor x = start.make("x", {1, 256, 8}, Fill::normal(1));
  const std::size_t before = memory_counters().live_bytes;
  const Tensor y = attention.forward(x, none, {});
  const std::size_t square = 256 * 256 * sizeof(float);
  EXPECT_LT(memory_counters().live_bytes - before, 2 * square);
  EXPECT_TRUE(requires_grad(y));
}

}  // namespace attention_test
}  // namespace tally
