// Random numbers are a function of seed, stream, step and element, on every device.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/device/kernels.hpp"
#include "core/tensor.hpp"
#include "tests/devices.hpp"

namespace tally {
namespace {

class Random : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Random);

// The result of fill(kernels, view) for an empty tensor, as f64 for any type.
template <class Fill>
std::vector<double> values(Device device, DType dtype, Fill&& fill) {
  const Tensor y = Tensor::empty({3, 1031}, dtype, device);
  fill(kernels(device), y.view());
  return y.to(Device{}).to(DType::f64).to_vector<double>();
}

TEST_P(Random, NumbersAreThoseOfTheCpu) {
  const RandomStream stream{5, stream_of("weights"), 3};
  for (const DType dtype : {DType::f32, DType::f64}) {
    SCOPED_TRACE(to_text(dtype));
    const auto uniform = [&](const Kernels& k, View y) { k.random_uniform(y, stream, -2.1, 3.3); };
    EXPECT_EQ(values(GetParam(), dtype, uniform), values(Device{}, dtype, uniform));
    const auto normal = [&](const Kernels& k, View y) { k.random_normal(y, stream, 1.5, 0.02); };
    EXPECT_EQ(values(GetParam(), dtype, normal), values(Device{}, dtype, normal));
  }
}

TEST_P(Random, DropoutKeepsTheSameElementsOnEveryDevice) {
  const RandomStream stream{5, stream_of("weights"), 3};
  const auto drop = [&](const Kernels& k, View y) {
    k.fill(y, 1);
    k.dropout(y, y, 0.3, stream);
  };
  for (const DType dtype : {DType::f32, DType::f64}) {
    EXPECT_EQ(values(GetParam(), dtype, drop), values(Device{}, dtype, drop)) << to_text(dtype);
  }
}

// Wherever the part begins: a block of four words may belong to two parts.
TEST_P(Random, APartDrawsWhatTheWholeDoes) {
  const RandomStream stream{5, stream_of("weights"), 3};
  const auto draw = [&](std::uint64_t first, std::int64_t count, auto&& kernel) {
    RandomStream part = stream;
    part.first = first;
    const Tensor y = Tensor::full({count}, 1, DType::f32, GetParam());
    kernel(y.view(), part);
    return y.to(Device{}).to_vector<float>();
  };
  const Kernels& k = kernels(GetParam());
  const auto uniform = [&](View y, const RandomStream& from) { k.random_uniform(y, from, 0, 1); };
  const auto normal = [&](View y, const RandomStream& from) { k.random_normal(y, from, 0, 1); };
  const auto drop = [&](View y, const RandomStream& from) { k.dropout(y, y, 0.5, from); };
  const auto expect_parts = [&](const auto& kernel) {
    const std::vector<float> whole = draw(0, 6000, kernel);
    for (const auto& [first, count] : {std::pair{1, 2}, {2, 1}, {3, 5}, {4, 8}, {1021, 4000}, {2047, 2050}}) {
      const std::vector<float> part = draw(static_cast<std::uint64_t>(first), count, kernel);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first)) << first << ", " << count;
    }
  };
  expect_parts(uniform);
  expect_parts(normal);
  expect_parts(drop);
}

}  // namespace
}  // namespace tally
