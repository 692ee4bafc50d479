// Captured work (core/device/graph.hpp); tests/tasks captures whole training steps.
#include "core/device/graph.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/device/backend.hpp"
#include "core/device/kernels.hpp"
#include "core/error.hpp"
#include "core/tensor.hpp"
#include "tests/devices.hpp"

namespace tally {
namespace {

class Graph : public testing::OnDevice {
 protected:
  static Device device() { return GetParam(); }
  static const Kernels& k() { return kernels(device()); }

  // The message with which f is refused; empty if it is not.
  static std::string refusal_of(const std::function<void()>& f) {
    try {
      f();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
};
TALLY_ON_KERNEL_DEVICES(Graph);

TEST_P(Graph, RunsWhenLaunchedAndReadsWhatIsThereThen) {
  const Tensor x = Tensor::full({3}, 1, DType::f32, device()), y = Tensor::zeros({3}, DType::f32, device());
  const DeviceGraph twice = DeviceGraph::capture(device(), [&] {
    const Tensor own = Tensor::empty({3}, DType::f32, device());
    k().unary(UnaryOp::multiply_scalar, 2, own.view(), x.view());
    k().binary(BinaryOp::add, y.view(), y.view(), own.view());
  });
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>({0, 0, 0}));
  twice.launch();
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>({2, 2, 2}));
  k().fill(x.view(), 5);
  twice.launch();
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>({12, 12, 12}));
  EXPECT_EQ(twice.size().kernels, 2);
  EXPECT_EQ(twice.size().allocations, 0);
}

TEST_P(Graph, OfADropoutReadsItsStep) {
  const Tensor x = Tensor::full({1000}, 1, DType::f32, device()), y = Tensor::zeros({1000}, DType::f32, device());
  Tensor step = Tensor::zeros({1}, DType::i32, device());
  const DeviceGraph drop = DeviceGraph::capture(device(), [&] {
    k().dropout(y.view(), x.view(), 0.4, {.seed = 1, .stream = 2, .step_at = step.view().as<std::uint32_t>()});
  });
  for (const std::uint32_t n : {3U, 4U}) {
    step.copy_from(Tensor::full({1}, n, DType::i32));
    drop.launch();
    const Tensor expected = Tensor::zeros({1000});
    kernels(Device{}).dropout(expected.view(), x.to(Device{}).view(), 0.4, {.seed = 1, .stream = 2, .step = n});
    EXPECT_EQ(y.to_vector<float>(), expected.to_vector<float>());
  }
}

TEST_P(Graph, IsRefusedWhereItCannotBe) {
  EXPECT_FALSE(DeviceGraph::available(Device{}));
  EXPECT_NE(refusal_of([] { DeviceGraph::capture(Device{}, [] {}); }).find("work on cpu cannot be captured"),
            std::string::npos);
  const Tensor x = Tensor::zeros({1}, DType::f32, device());
  const std::string read_back = refusal_of([&] { DeviceGraph::capture(device(), [&] { x.item(); }); });
  EXPECT_NE(read_back.find("numbers were read back from the device in work that is being captured"), std::string::npos)
      << read_back;
  // The device is as it was.
  EXPECT_EQ(x.item(), 0);
  EXPECT_EQ(refusal_of([] { DeviceGraph::capture(device(), [] { fail("work", "went wrong"); }); }),
            "[work] went wrong");
  EXPECT_EQ(x.item(), 0);
}

// A read-back is found, even if the exception is caught on its way.
TEST_P(Graph, OfWorkThatReadsBackIsNotMade) {
  const Tensor x = Tensor::full({1}, 3, DType::f32, device());
  EXPECT_THROW(DeviceGraph::capture(device(), [&] { refusal_of([&] { x.item(); }); }), ReadsBack);
  GraphedStep work;
  double sum = 0;
  for (int n = 0; n < 3; ++n) work(device(), [&] { sum += x.item(); });
  EXPECT_EQ(sum, 9);
  EXPECT_NE(work.refusal().find("numbers were read back"), std::string::npos);
}

// Each launch takes the graph's memory: the one before must have given it back.
TEST_P(Graph, NamesATensorThatOutlivesTheWork) {
  Tensor kept;
  const std::string lost =
      refusal_of([&] { DeviceGraph::capture(device(), [&] { kept = Tensor::full({3}, 7, DType::f32, device()); }); });
  EXPECT_EQ(lost,
            "[graph] 1 of the tensors made in work that is being captured are still there at its end, of 12 bytes the "
            "first; what outlives the work has to be made before");
  Tensor other = Tensor::full({3}, 2, DType::f32, device());
  kept = {};
  EXPECT_EQ(other.to_vector<float>(), std::vector<float>({2, 2, 2}));
}

// A block is free for other tensors as soon as its tensor is gone, and merged with its free neighbours.
TEST_P(Graph, HasMemoryForTheTensorsOfOneMoment) {
  constexpr std::int64_t mebibyte = 1 << 20;
  const auto tensor = [](std::int64_t count) { return Tensor::empty({count * mebibyte}, DType::boolean, device()); };
  const Tensor sum = Tensor::zeros({1}, DType::f32, device());
  const DeviceGraph graph = DeviceGraph::capture(device(), [&] {
    tensor(12);
    std::vector<Tensor> pieces;
    for (int n = 0; n < 4; ++n) pieces.push_back(tensor(3));
    pieces[1] = pieces[3] = {};
    pieces[2] = {};  // between free neighbours
    const Tensor x = tensor(9);
    pieces[0] = {};
    const Tensor y = tensor(3);
  });
  EXPECT_EQ(graph.size().bytes, 12 * mebibyte);
  EXPECT_EQ(graph.size().kernels, 0);
}

// Unwritten memory is NaN in every run, although tensors of the run before had it.
TEST_P(Graph, ReadsNoNumbersOfOtherTensors) {
  if (device() != testing::on_cuda_host) GTEST_SKIP() << "a GPU does not fill memory";
  const Tensor y = Tensor::zeros({3}, DType::f32, device());
  const DeviceGraph graph = DeviceGraph::capture(device(), [&] {
    k().binary(BinaryOp::add, y.view(), y.view(), Tensor::empty({3}, DType::f32, device()).view());
    Tensor::full({3}, 7, DType::f32, device());
  });
  for (int n = 0; n < 2; ++n) {
    k().fill(y.view(), 1);
    graph.launch();
    for (const float number : y.to_vector<float>()) EXPECT_NE(number, number);
  }
}

// Values copied from the host are available at every launch, even if the host's memory has changed.
TEST_P(Graph, KeepsWhatIsCopiedFromTheHost) {
  Tensor source = Tensor::from(std::vector<float>{1, 2, 3}, {3}), y = Tensor::zeros({3}, DType::f32, device());
  const DeviceGraph copies = DeviceGraph::capture(device(), [&] { y.copy_from(source); });
  source.fill(9);
  for (int n = 0; n < 2; ++n) {
    y.fill(0);
    copies.launch();
    EXPECT_EQ(y.to_vector<float>(), std::vector<float>({1, 2, 3}));
  }
}

// As long as the graph exists, also if memory is only counted.
TEST_P(Graph, CountsWhatItKeeps) {
  for (const Device on : {device(), meta_of(device())}) {
    const Tensor read = Tensor::zeros({3}, DType::f32, on);
    const MemoryCounters before = memory_counters(on);
    const auto work = [&] {
      for (int n = 0; n < 2; ++n) Tensor::from(std::vector<float>{1, 2, 3}, {3}, on);
    };
    {
      const DeviceGraph copies = DeviceGraph::capture(on, work);
      EXPECT_EQ(memory_counters(on).live_bytes, before.live_bytes + 24) << to_text(on);
      EXPECT_EQ(memory_counters(on).live_blocks, before.live_blocks + 2) << to_text(on);
      copies.launch();
    }
    EXPECT_EQ(memory_counters(on).live_bytes, before.live_bytes) << to_text(on);
    EXPECT_EQ(memory_counters(on).live_blocks, before.live_blocks) << to_text(on);
    // Also where the capture is given up.
    EXPECT_THROW(DeviceGraph::capture(on, [&] { work(), read.to_vector<float>(); }), ReadsBack) << to_text(on);
    EXPECT_EQ(memory_counters(on).live_bytes, before.live_bytes) << to_text(on);
  }
}

TEST_P(Graph, CannotFreeATensorFromBefore) {
  Tensor before = Tensor::full({3}, 1, DType::f32, device());
  const std::string lost = refusal_of([&] { DeviceGraph::capture(device(), [&] { before = {}; }); });
  EXPECT_EQ(lost, "[graph] a tensor from before was freed in work that is being captured");
  EXPECT_EQ(Tensor::full({1}, 2, DType::f32, device()).item(), 2);
}

}  // namespace
}  // namespace tally
