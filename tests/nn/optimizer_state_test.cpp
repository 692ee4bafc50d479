// Optimisers change the values of parameters and their own state, and no other tensors.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "autograd/node.hpp"
#include "nn/optimizer.hpp"
#include "nn/transformer.hpp"

namespace tally::optimizer_state_test {

Tensor leaf(const Shape& shape) {
  Tensor x = Tensor::full(shape, 3, DType::f64);
  set_requires_grad(x);
  set_gradient(x, Tensor::full(shape, 0.5, DType::f64));
  return x;
}

// A step raises the versions of the state's tensors, so that an earlier use of one is noticed.
TEST(OptimizerState, RaisesTheVersionOfEveryTensor) {
  for (const std::string rule : {"adamw", "adam", "sgd"}) {
    OptimizerOptions options;
    options.name = rule;
    if (rule == "sgd") options.set("momentum", "0.9");
    const auto optimizer = Optimizer::make(options, {{"p", leaf({2, 2})}, {"q", leaf({3})}});
    std::vector<std::uint64_t> before;
    for (const auto& [name, tensor] : optimizer->state()) before.push_back(tensor.version());
    optimizer->step();
    const NamedTensors state = optimizer->state();
    ASSERT_EQ(state.size(), rule == "sgd" ? 2u : 4u);
    for (std::size_t i = 0; i < state.size(); ++i) EXPECT_GT(state[i].second.version(), before[i]) << state[i].first;
  }
}

TEST(OptimizerState, DecayOfMatricesSparesAVectorOfAnySize) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{5}}) {
    OptimizerOptions options;
    options.name = "sgd";
    options.weight_decay = 0.1, options.lr = 1;
    options.decay = "matrices";
    const Tensor vector = leaf(shape), matrix = leaf({1, 1});
    Optimizer::make(options, {{"v", vector}, {"m", matrix}})->step();
    EXPECT_EQ(vector.to_vector<double>().front(), 2.5) << shape.rank;
    EXPECT_NEAR(matrix.item(), 2.2, 1e-15);
  }
}

// The names of the parameters that a step with gradients of zero changes.
std::set<std::string> decaying(const NamedTensors& parameters, const std::string& decay) {
  OptimizerOptions options;
  options.weight_decay = 0.5;
  options.decay = decay;
  for (auto [path, parameter] : parameters) {
    parameter.copy_from(Tensor::full(parameter.shape(), 1, parameter.dtype()));
    set_gradient(parameter, Tensor::zeros(parameter.shape(), parameter.dtype()));
  }
  Optimizer::make(options, parameters)->step();
  std::set<std::string> changed;
  for (const auto& [path, parameter] : parameters) {
    if (parameter.to_vector<float>().front() != 1) changed.insert(path);
  }
  return changed;
}

TEST(OptimizerState, DecayOfLinearLayersSparesEmbeddingsNormsAndTables) {
  const std::set<std::string> of_fox_pro{
      "blocks.0.position.fox-pro.forget.weight", "blocks.0.position.fox-pro.key-shift.weight",
      "blocks.0.position.fox-pro.value-shift.weight", "blocks.0.position.fox-pro.output-gate.weight"};
  for (const bool tied : {false, true}) {
    ModelOptions options;
    options.layers = 1, options.width = 8, options.heads = 2;
    options.tied = tied;
    options.qk_norm = "head";
    const Transformer model(options, EncodingChoice::parse("absolute+fox-pro+t5"), 5, 6, 1);
    std::set<std::string> linear = of_fox_pro;
    for (const char* name :
         {"attention.query", "attention.key", "attention.value", "attention.output", "mlp.up", "mlp.down"}) {
      linear.insert(formatted("blocks.0.{}.weight", name));
    }
    if (!tied) linear.insert("head.weight");
    EXPECT_EQ(decaying(model.parameters(), "linear"), linear);
    std::set<std::string> matrices = linear;
    for (const char* name : {"embedding.weight", "position.absolute.table", "blocks.0.position.t5.biases",
                             "blocks.0.position.fox-pro.query-norm.weight", "blocks.0.position.fox-pro.key-norm.weight",
                             "blocks.0.position.fox-pro.output-norm.weight"}) {
      matrices.insert(name);
    }
    EXPECT_EQ(decaying(model.parameters(), "matrices"), matrices);
    EXPECT_EQ(decaying(model.parameters(), "all").size(), model.parameters().size());
  }
}

// A model without attention has linear layers, too.
TEST(OptimizerState, DecayOfLinearLayersIsThatOfAnLstm) {
  ModelOptions options;
  options.kind = "lstm", options.layers = 1, options.width = 4;
  const auto model = make_model(options, EncodingChoice::parse("none"), 5, 6, 1);
  EXPECT_EQ(decaying(model->parameters(), "linear"),
            (std::set<std::string>{"head.weight", "layers.0.input.weight", "layers.0.recurrent.weight"}));
}

}  // namespace tally::optimizer_state_test
