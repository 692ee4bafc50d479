// Random numbers are a function of seed, stream, step and element, on every device.
#include <gtest/gtest.h>

#include <vector>

#include "core/kernels.hpp"
#include "core/tensor.hpp"
#include "tests/devices.hpp"

namespace tally {
namespace {

class Random : public testing::OnDevice {};
TALLY_ON_KERNEL_DEVICES(Random);

// What fill(kernels, view) makes of an empty tensor, f64 from any type.
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

}  // namespace
}  // namespace tally
