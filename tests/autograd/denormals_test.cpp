// Kernels treat subnormal numbers as zero, in operands and in results, for any number of threads.
// core/floating_mode_test.cpp tests the mode.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/cpu/parallel.hpp"
#include "tests/devices.hpp"

namespace tally::denormals_test {

class Denormals : public testing::OnDevice {
 protected:
  void TearDown() override {
    set_thread_count(threads_);
    OnDevice::TearDown();
  }

 private:
  int threads_ = thread_count();
};
TALLY_ON_EVERY_DEVICE(Denormals);

template <class T>
Tensor filled(const Shape& shape, T value) {
  return Tensor::from(std::vector<T>(static_cast<std::size_t>(shape.numel()), value), shape, default_device());
}

// Every result would be a denormal number. Enough elements that more than one thread computes.
template <class T>
std::vector<std::pair<std::string, std::function<Tensor()>>> results() {
  constexpr T least = std::numeric_limits<T>::min();
  const T root = std::sqrt(least) / 4;
  const std::int64_t n = testing::only_small_kernels(default_device()) ? 32 : 192;
  const Tensor small = filled<T>({n, n}, root);
  const Tensor denormal = filled<T>({n, n}, least / 1024);
  const Tensor one = filled<T>({n, n}, T{1});
  const Tensor vectors = filled<T>({n, 1}, root), row = filled<T>({1, n}, root);
  return {
      {"a product", [=] { return multiply(small, small); }},
      {"a denormal operand made normal", [=] { return multiply(denormal, 4096.0); }},
      {"a sum", [=] { return sum(denormal, {1}); }},
      {"a running sum", [=] { return cumsum(denormal); }},
      {"a product of matrices", [=] { return matmul(vectors, row); }},
      {"a product of matrices of denormal operands", [=] { return matmul(denormal, one); }},
  };
}

// -0 is a zero too.
template <class T>
bool all_zero(const std::vector<T>& values) {
  return std::all_of(values.begin(), values.end(), [](T x) { return x == T{0}; });
}

template <class T>
void expect_zeros() {
  const NoGrad only_values;
  for (const int threads : {1, 2, 3}) {
    set_thread_count(threads);
    for (const auto& [name, result] : results<T>()) {
      const std::vector<T> values = result().to(Device{}).template to_vector<T>();
      EXPECT_TRUE(all_zero(values)) << name << " by " << threads << " threads: " << values.front();
    }
  }
}

TEST_P(Denormals, AreZeroInF32) { expect_zeros<float>(); }

TEST_P(Denormals, AreZeroInF64) {
  if (GetParam().type == DeviceType::cuda) GTEST_SKIP() << "a GPU has no mode for f64 that flushes them";
  expect_zeros<double>();
}

// Storing and moving compute nothing, so subnormal numbers of a file or a caller come back.
TEST_P(Denormals, AreKeptWhereNothingIsComputed) {
  const std::vector<float> given{std::numeric_limits<float>::denorm_min(), -1e-40F, 1.0F, 0.0F};
  const Tensor x = Tensor::from(given, {2, 2}, default_device());
  EXPECT_EQ(x.to(Device{}).to_vector<float>(), given);
  const std::vector<float> turned{given[0], given[2], given[1], given[3]};
  EXPECT_EQ(transpose(x, 0, 1).to_dense().to(Device{}).to_vector<float>(), turned);
}

}  // namespace tally::denormals_test
