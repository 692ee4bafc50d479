// What optimisers change beside the values of parameters, and what they leave alone.
#include <gtest/gtest.h>

#include <string>

#include "autograd/node.hpp"
#include "nn/optimizer.hpp"

namespace tally {
namespace {

Tensor leaf(const Shape& shape) {
  Tensor x = Tensor::full(shape, 3, DType::f64);
  set_requires_grad(x);
  set_gradient(x, Tensor::full(shape, 0.5, DType::f64));
  return x;
}

// Who holds a tensor of the state is told of the step.
TEST(OptimizerState, RaisesTheVersionOfEveryTensor) {
  for (const std::string rule : {"adamw", "adam", "sgd"}) {
    OptimizerOptions options;
    options.name = rule;
    if (rule == "sgd") options.set("momentum", "0.9");
    const auto optimizer = Optimizer::make(options, {{"p", leaf({2, 2})}, {"q", leaf({3})}});
    std::vector<std::uint64_t> before;
    for (const auto& [name, tensor] : optimizer->state()) before.push_back(tensor.version());
    optimizer->step(1, 0.1, 1);
    const NamedTensors state = optimizer->state();
    ASSERT_EQ(state.size(), rule == "sgd" ? 2u : 4u);
    for (std::size_t i = 0; i < state.size(); ++i) EXPECT_GT(state[i].second.version(), before[i]) << state[i].first;
  }
}

TEST(OptimizerState, DecayOfMatricesSparesAVectorOfAnySize) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{5}}) {
    OptimizerOptions options;
    options.name = "sgd";
    options.weight_decay = 0.1;
    options.decay = "matrices";
    const Tensor vector = leaf(shape), matrix = leaf({1, 1});
    Optimizer::make(options, {{"v", vector}, {"m", matrix}})->step(1, 1, 1);
    EXPECT_EQ(vector.to_vector<double>().front(), 2.5) << shape.rank;
    EXPECT_NEAR(matrix.item(), 2.2, 1e-15);
  }
}

}  // namespace
}  // namespace tally
