// Random numbers are a function of seed, stream, step and element: the CUDA kernels give the CPU's to the bit, and with
// them the same initial weights, data and dropout masks.
#include <gtest/gtest.h>

#include "core/kernels.hpp"
#include "tests/cuda/kernel_bench.hpp"

namespace tally::cuda_host {
namespace {

// What fill(kernels, view) makes of an empty tensor on each device.
template <class T, class Fill>
void expect_same_bits(DType dtype, Fill&& fill) {
  const auto values = [&](Device where) {
    const Tensor y = Tensor::empty({3, 1031}, dtype, where);
    fill(kernels(where), y.view());
    return y.to(Device{}).to_vector<T>();
  };
  EXPECT_EQ(values(Device{}), values(device));
}

template <class T>
class Random : public ::testing::Test {};
using Floating = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Random, Floating);

TYPED_TEST(Random, IsTheSameBitsOnEveryDevice) {
  const DType dtype = dtype_of<TypeParam>;
  const RandomStream stream{5, stream_of("weights"), 3};
  expect_same_bits<TypeParam>(dtype, [&](const Kernels& k, View y) { k.random_uniform(y, stream, -2.0, 3.0); });
  expect_same_bits<TypeParam>(dtype, [&](const Kernels& k, View y) { k.random_normal(y, stream, 1.5, 0.02); });
  expect_same_bits<TypeParam>(dtype, [&](const Kernels& k, View y) {
    k.fill(y, 1);
    k.dropout(y, y, 0.3, stream);
  });
}

}  // namespace
}  // namespace tally::cuda_host
