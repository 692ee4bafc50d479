#include "autograd/profile.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "cuda/emulator/settings.hpp"
#include "tests/devices.hpp"

namespace tally::profile_test {

std::vector<std::string> names_of(const std::vector<ProfileEvent>& events) {
  std::vector<std::string> names;
  for (const ProfileEvent& event : events) names.push_back(event.name);
  return names;
}

using Names = std::vector<std::string>;

TEST(Profile, NamesForwardAndBackwardInOrder) {
  Tensor x = Tensor::full({100, 100}, 0.5);
  set_requires_grad(x);
  start_profile();
  backward(sum(softmax(x)));
  const std::vector<ProfileEvent> events = stop_profile();
  EXPECT_EQ(names_of(events), Names({"softmax", "sum", "sum backward", "softmax backward"}));
  EXPECT_GE(events[0].bytes, 100u * 100u * 4u);
  double end = 0;
  for (const ProfileEvent& event : events) {
    EXPECT_GE(event.start_us, end) << event.name;
    EXPECT_GT(event.duration_us, 0) << event.name;
    end = event.start_us + event.duration_us;
  }
}

// mean is a sum and a product, and the loss contains a sum, but both appear once, by the called name.
TEST(Profile, ComposedOperationsAppearOnce) {
  const Tensor x = Tensor::full({2, 3}, 0.5);
  start_profile();
  mean(x);
  cross_entropy(x, Tensor::zeros({2}, DType::i32), Tensor::full({2}, 1, DType::boolean));
  EXPECT_EQ(names_of(stop_profile()), Names({"mean", "cross_entropy"}));
}

TEST(Profile, CollectsOnlyBetweenStartAndStop) {
  const Tensor x = Tensor::full({2}, 0.5);
  exp(x);
  start_profile();
  sin(x);
  start_profile();  // begins anew
  cos(x);
  EXPECT_EQ(names_of(stop_profile()), Names({"cos"}));
  exp(x);
  EXPECT_TRUE(stop_profile().empty());
}

TEST(Profile, AnErrorEndsItsEvent) {
  const Tensor x = Tensor::full({2, 3}, 0.5);
  start_profile();
  EXPECT_ANY_THROW(matmul(x, x));
  exp(x);
  EXPECT_EQ(names_of(stop_profile()), Names({"matmul", "exp"}));
}

class ProfileOf : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(ProfileOf);

// Kernels start long before they finish, so the device's time and memory are measured.
TEST_P(ProfileOf, TheDeviceTellsItsOwnTimeAndMemory) {
  const cuda_host::Settings before = cuda_host::settings();
  cuda_host::set_settings({.delay_streams = true});
  const Tensor x = Tensor::full({256, 256}, 0.5, DType::f32, GetParam());  // a size of blocks, exactly
  synchronize(GetParam());
  const auto begin = std::chrono::steady_clock::now();
  start_profile();
  const Tensor y = softmax(x);
  const std::vector<ProfileEvent> events = stop_profile();
  const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - begin;
  cuda_host::set_settings(before);
  ASSERT_EQ(names_of(events), Names({"softmax"}));
  EXPECT_EQ(events[0].bytes, 256u * 256u * 4u);
  EXPECT_GT(events[0].duration_us, GetParam() == testing::on_cuda_host ? passed.count() / 2 : 0);
  EXPECT_LE(events[0].start_us + events[0].duration_us, passed.count());
}

}  // namespace tally::profile_test
