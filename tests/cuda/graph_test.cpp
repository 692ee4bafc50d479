// Captured work (core/graph.hpp) on cuda-host; nn and tasks test whole training steps with it.
#include "core/graph.hpp"

#include <gtest/gtest.h>

#include <string>

#include "core/error.hpp"
#include "core/kernels.hpp"
#include "tests/cuda/kernel_bench.hpp"

namespace tally::cuda_host {
namespace {

// What f is refused with; empty if it is not.
std::string refusal_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Graph, RunsWhenLaunchedAndReadsWhatIsThereThen) {
  const Tensor x = Tensor::full({3}, 1, DType::f32, device), y = Tensor::zeros({3}, DType::f32, device);
  const DeviceGraph twice = DeviceGraph::capture(device, [&] {
    const Tensor own = Tensor::empty({3}, DType::f32, device);
    kernels(device).unary(UnaryOp::multiply_scalar, 2, own.view(), x.view());
    kernels(device).binary(BinaryOp::add, y.view(), y.view(), own.view());
  });
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>({0, 0, 0}));
  twice.launch();
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>({2, 2, 2}));
  kernels(device).fill(x.view(), 5);
  twice.launch();
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>({12, 12, 12}));
}

TEST(Graph, OfADropoutReadsItsStep) {
  const Tensor x = Tensor::full({1000}, 1, DType::f32, device), y = Tensor::zeros({1000}, DType::f32, device);
  Tensor step = Tensor::zeros({1}, DType::i32, device);
  const DeviceGraph drop = DeviceGraph::capture(device, [&] {
    kernels(device).dropout(y.view(), x.view(), 0.4,
                            {.seed = 1, .stream = 2, .step_at = step.view().as<std::uint32_t>()});
  });
  for (const std::uint32_t n : {3U, 4U}) {
    step.copy_from(Tensor::full({1}, n, DType::i32));
    drop.launch();
    const Tensor expected = Tensor::zeros({1000});
    kernels(Device{}).dropout(expected.view(), x.to(Device{}).view(), 0.4, {.seed = 1, .stream = 2, .step = n});
    EXPECT_EQ(y.to_vector<float>(), expected.to_vector<float>());
  }
}

TEST(Graph, IsRefusedWhereItCannotBe) {
  EXPECT_FALSE(DeviceGraph::available(Device{}));
  EXPECT_NE(refusal_of([] { DeviceGraph::capture(Device{}, [] {}); }).find("work on cpu cannot be captured"),
            std::string::npos);
  const Tensor x = Tensor::zeros({1}, DType::f32, device);
  const std::string read_back = refusal_of([&] { DeviceGraph::capture(device, [&] { x.item(); }); });
  EXPECT_NE(read_back.find("numbers were read back from the device in work that is being captured"), std::string::npos)
      << read_back;
  // The device is as it was.
  EXPECT_EQ(x.item(), 0);
  EXPECT_EQ(refusal_of([] { DeviceGraph::capture(device, [] { fail("work", "went wrong"); }); }), "[work] went wrong");
  EXPECT_EQ(x.item(), 0);
}

}  // namespace
}  // namespace tally::cuda_host
