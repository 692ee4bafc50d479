// The test of exercise 11.
#include <gtest/gtest.h>

#include <vector>

#include "core/tensor.hpp"
#include "cuda/emulator/settings.hpp"
#include "cuda/runtime/context.hpp"
#include "cuda/runtime/launch.hpp"

__global__ void largest_kernel(float* largest, const float* x, int n);

namespace tally::cuda_host {
namespace {

float largest_of(const std::vector<float>& numbers) {
  const Device device{DeviceType::cuda_host, 0};
  const Tensor x = Tensor::from(numbers, {std::ssize(numbers)}, device), y = Tensor::zeros({1}, DType::f32, device);
  launch(largest_kernel, 1, 64, 0, use_device(0).stream, y.view().as<float>(), x.view().as<float>(),
         static_cast<int>(numbers.size()));
  return y.to_vector<float>()[0];
}

// In every order of the threads.
void expect_largest(const std::vector<float>& numbers, float wanted) {
  const Settings before = settings();
  for (const Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::random}) {
    set_settings({.schedule = schedule});
    EXPECT_EQ(largest_of(numbers), wanted) << "schedule " << static_cast<int>(schedule);
  }
  set_settings(before);
}

TEST(LargestKernel, FindsItAnywhere) {
  for (std::size_t place = 0; place < 200; place += 9) {
    std::vector<float> numbers(200, -5);
    numbers[place] = -1;
    expect_largest(numbers, -1);
  }
}

TEST(LargestKernel, TakesFewerElementsThanThreads) {
  expect_largest({-3}, -3);
  expect_largest({-3, -2, -7}, -2);
}

}  // namespace
}  // namespace tally::cuda_host
