// Tensors that move between host and device in one transfer.
#include "core/device/staging_buffer.hpp"

#include <gtest/gtest.h>

#include <span>

#include "tests/devices.hpp"

namespace tally::staging_buffer_test {

class StagingBuffers : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(StagingBuffers);

TEST_P(StagingBuffers, CarryEveryPartThereAndBack) {
  StagingBuffer buffer({{{3}, DType::boolean}, {{2, 2}, DType::f64}, {{0}, DType::i32}, {{5}, DType::i64}}, GetParam());
  ASSERT_TRUE(buffer.defined());
  EXPECT_EQ(buffer.on_device(1).to_vector<double>(), std::vector<double>(4, 0.0));
  constexpr bool flags[] = {true, false, true};
  buffer.on_host(0).copy_from(Tensor::from(std::span<const bool>(flags), {3}));
  buffer.on_host(1).copy_from(Tensor::from(std::vector<double>{1, 2, 3, 4}, {2, 2}));
  buffer.on_host(3).fill(7);
  const std::uint64_t version = buffer.on_device(1).version();
  buffer.send();
  EXPECT_GT(buffer.on_device(1).version(), version) << "a value that backward has kept is seen to have changed";
  for (std::size_t part = 0; part < 4; ++part) EXPECT_EQ(buffer.on_device(part).device(), GetParam());
  EXPECT_EQ(buffer.on_device(0).to_vector<bool>(), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(buffer.on_device(1).to_vector<double>(), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(buffer.on_device(3).to_vector<std::int64_t>(), std::vector<std::int64_t>(5, 7));

  buffer.on_device(1).fill(-1);
  buffer.fetch();
  EXPECT_EQ(buffer.on_host(1).to_vector<double>(), std::vector<double>(4, -1.0));
  EXPECT_EQ(buffer.on_host(0).to_vector<bool>(), (std::vector<bool>{true, false, true}));
}

TEST_P(StagingBuffers, MayBeEmpty) {
  EXPECT_FALSE(StagingBuffer().defined());
  StagingBuffer buffer({{{0}, DType::f32}}, GetParam());
  buffer.send();
  buffer.fetch();
  EXPECT_EQ(buffer.on_device(0).numel(), 0);
}

}  // namespace tally::staging_buffer_test
