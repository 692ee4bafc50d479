// Random numbers are a function of seed, stream, step and element, on every device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
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

// The kernels executed by the CPU use its mathematics and give its bits. A GPU has its own logarithm and cosine, each
// within two roundings: their product, and what is added to it, are within four of the largest number.
template <class Fill>
void expect_same(Device device, DType dtype, Fill&& fill) {
  const std::vector<double> found = values(device, dtype, fill), expected = values(Device{}, dtype, fill);
  if (device.type == DeviceType::cuda_host) {
    EXPECT_EQ(found, expected);
    return;
  }
  const double rounding =
      dtype == DType::f32 ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
  double largest = 0, worst = 0;
  for (std::size_t n = 0; n < found.size(); ++n) {
    largest = std::max(largest, std::abs(expected[n]));
    if (!(std::abs(found[n] - expected[n]) <= worst)) worst = std::abs(found[n] - expected[n]);
  }
  EXPECT_LE(worst, 4 * rounding * largest);
}

TEST_P(Random, NumbersAreThoseOfTheCpu) {
  const RandomStream stream{5, stream_of("weights"), 3};
  for (const DType dtype : {DType::f32, DType::f64}) {
    SCOPED_TRACE(to_text(dtype));
    expect_same(GetParam(), dtype, [&](const Kernels& k, View y) { k.random_uniform(y, stream, -2.0, 3.0); });
    expect_same(GetParam(), dtype, [&](const Kernels& k, View y) { k.random_normal(y, stream, 1.5, 0.02); });
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
