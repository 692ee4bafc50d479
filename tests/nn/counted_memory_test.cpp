// The memory of attention compared with the counters of a device: no estimate (tasks/checks/estimate.hpp) can include
// memory that they do not count.
#include <gtest/gtest.h>

#include <malloc.h>

#include "cuda/emulator/runtime_api.hpp"
#include "nn/layers/dropout.hpp"
#include "tests/nn/score_cases.hpp"

namespace tally::counted_memory_test {

// Computes attention with dropout and a score modification, and calls `kept` while the saved activations exist.
void attend(bool tiled, const std::function<void()>& kept) {
  const testing::Sizes sizes{1, 2, 300, 8, 8};
  const testing::ShapeCase table{
      "table", [](const testing::ShapeParts& x) { x.score.add_score_mod(contextual_table(x.table(8))); }};
  testing::Inputs inputs = testing::make_inputs(table, sizes, DType::f32, testing::drawn(0));
  AttentionOperands& in = inputs.operands;
  const Dropout drop(Initializer(0, StartValues::gpt2), "weights", 0.25);
  const ForwardContext pass{.training = true, .step = {.seed = 3, .number = 5}};
  in.dropout = drop.rate(pass);
  in.dropout_stream = drop.stream(pass, 1);
  struct Plain final : Encoding {};
  const AttentionInput plain{in.q, in.q, in.k, in.v, in.scale};
  const Tensor output =
      tiled ? tiled_attention(in, inputs.score) : composed_attention(in, inputs.score, Plain{}, plain, drop, pass);
  kept();
  backward(output, testing::normal_tensor("d_output", output.shape()).to(DType::f32));
}

// Memory that is taken by now and is in no counter.
std::int64_t beside_counters_on_the_host() {
  const struct mallinfo2 heap = mallinfo2();
  const MemoryCounters counted = memory_counters();
  return static_cast<std::int64_t>(heap.uordblks + heap.hblkhd) -
         static_cast<std::int64_t>(counted.live_bytes + counted.cached_bytes);
}
std::int64_t beside_counters_on_the_device() {
  std::uint64_t used = 0;
  EXPECT_EQ(cuda_host::cudaMemPoolGetAttribute(nullptr, cuda_host::cudaMemPoolAttrUsedMemCurrent, &used),
            cuda_host::cudaSuccess);
  return static_cast<std::int64_t>(used - memory_counters(testing::on_cuda_host).live_bytes);
}

// The dropped weights, one number each, would take 720,000 bytes; nodes and lists of a graph take a few thousand.
TEST(CountedMemory, IsAllThatAttentionWithDropoutKeepsOnTheCpu) {
  constexpr std::int64_t little = 1 << 16;
  for (const bool tiled : {true, false}) {
    attend(tiled, [] {});  // tensors that are made once exist now
    const std::int64_t before = beside_counters_on_the_host();
    attend(tiled, [&] { EXPECT_LT(beside_counters_on_the_host() - before, little) << tiled; });
    EXPECT_LT(beside_counters_on_the_host() - before, little) << tiled;
  }
}

TEST(CountedMemory, IsAllThatAttentionWithDropoutKeepsOnADevice) {
  if (testing::only_small_kernels(testing::on_cuda_host)) GTEST_SKIP() << "under ThreadSanitizer";
  set_default_device(testing::on_cuda_host);
  for (const bool tiled : {true, false}) {
    attend(tiled, [] {});
    const std::int64_t before = beside_counters_on_the_device();
    attend(tiled, [&] { EXPECT_EQ(beside_counters_on_the_device(), before) << tiled; });
    EXPECT_EQ(beside_counters_on_the_device(), before) << tiled;
  }
  set_default_device({});
}

}  // namespace tally::counted_memory_test
