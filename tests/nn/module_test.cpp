// Modules: names, strict loading, start values.
#include "nn/module.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/mlp.hpp"
#include "nn/layers/norm.hpp"
#include "nn/transformer.hpp"
#include "tests/error_of.hpp"

namespace tally::module_test {

class Pair final : public Module {
 public:
  explicit Pair(const Initializer& start) : first_(start.at("first"), 2, 3), second_(start.at("second"), 3, 1) {
    add_child("first", first_);
    add_child("second", second_);
    add_parameter("scale", start.make("scale", {1}, Fill::constant(2)));
  }
  void register_again() { add_parameter("scale", Tensor::zeros({1})); }

 private:
  Linear first_, second_;
};

const Initializer start_values(5, StartValues::fan_in);
const Initializer start_f64(5, StartValues::fan_in, DType::f64);

std::string load_error(Module& module, const NamedTensors& values) {
  return testing::error_of([&] { module.load(values); });
}

TEST(Module, NamesParametersByPath) {
  Pair pair(start_values);
  std::vector<std::string> paths;
  for (const auto& [path, parameter] : pair.parameters()) {
    paths.push_back(path);
    EXPECT_TRUE(requires_grad(parameter));
  }
  EXPECT_EQ(paths, (std::vector<std::string>{"scale", "first.weight", "first.bias", "second.weight", "second.bias"}));
  EXPECT_EQ(pair.parameter_count(), 1 + 6 + 3 + 3 + 1);
  EXPECT_THROW(pair.register_again(), InternalError);
}

TEST(Module, LoadsValuesInPlace) {
  Pair pair(start_values), other(Initializer(6, StartValues::fan_in));
  const NamedTensors before = pair.parameters();
  EXPECT_NE(before[1].second.to_vector<float>(), other.parameters()[1].second.to_vector<float>());
  NamedTensors reversed = other.parameters();
  std::reverse(reversed.begin(), reversed.end());
  pair.load(reversed);
  for (std::size_t n = 0; n < before.size(); ++n) {
    EXPECT_EQ(before[n].second.to_vector<float>(), other.parameters()[n].second.to_vector<float>());
  }
}

TEST(Module, RefusesWithEverythingThatIsWrongAndChangesNothing) {
  Pair pair(start_values);
  const std::vector<float> before = pair.parameters()[1].second.to_vector<float>();
  const NamedTensors values{{"scale", Tensor::zeros({1}, DType::f64)}, {"first.weight", Tensor::zeros({3, 2})},
                            {"first.bias", Tensor::zeros({4})},        {"second.weight", Tensor::zeros({1, 3})},
                            {"second.weight", Tensor::zeros({1, 3})},  {"third", Tensor::zeros({1})}};
  EXPECT_EQ(load_error(pair, values),
            "[load] second.weight is given twice; scale is f64 [1] but must be f32 [1]; first.bias is f32 [4] but must "
            "be f32 [3]; second.bias is missing; third is unexpected");
  EXPECT_EQ(pair.parameters()[1].second.to_vector<float>(), before);
}

TEST(Module, ClearsGradients) {
  Pair pair(start_values);
  backward(sum(square(pair.parameters()[1].second)));
  EXPECT_TRUE(gradient(pair.parameters()[1].second).defined());
  pair.clear_gradients();
  EXPECT_FALSE(gradient(pair.parameters()[1].second).defined());
}

TEST(Initializer, DrawsEachParameterFromItsOwnStream) {
  const Initializer start(1, StartValues::gpt2);
  const auto draw = [](const Initializer& from, std::string_view name) {
    return from.make(name, {8}, Fill::normal(1)).to_vector<float>();
  };
  EXPECT_EQ(draw(start.at("a").at("b"), "c"), draw(start, "a.b.c"));
  EXPECT_NE(draw(start, "a"), draw(start, "b"));
  EXPECT_NE(draw(start, "a"), draw(Initializer(2, StartValues::gpt2), "a"));
  EXPECT_EQ(start.make("x", {2}, Fill::list({3, 4})).to_vector<float>(), (std::vector<float>{3, 4}));
}

struct Moments {
  double mean, deviation, largest;
};

Moments moments_of(const Tensor& tensor) {
  const std::vector<float> values = tensor.to_vector<float>();
  double sum = 0, squares = 0, largest = 0;
  for (const float value : values) {
    sum += static_cast<double>(value);
    squares += static_cast<double>(value) * static_cast<double>(value);
    largest = std::max(largest, std::abs(static_cast<double>(value)));
  }
  const auto n = static_cast<double>(values.size());
  return {sum / n, std::sqrt(squares / n - sum / n * sum / n), largest};
}

// Deviations of a model of width 64 with 2 layers, hidden 256, 32 symbols, 64 positions.
std::map<std::string, double> expected_deviations(const std::string& init) {
  const double residual = 0.5;  // 1/sqrt(2 layers)
  if (init == "gpt2") {
    return {{"embedding.weight", 0.02},
            {"blocks.0.attention.query.weight", 0.02},
            {"blocks.1.attention.output.weight", 0.02 * residual},
            {"blocks.0.mlp.up.weight", 0.02},
            {"blocks.1.mlp.down.weight", 0.02 * residual},
            {"head.weight", 0.02},
            {"position.absolute.table", 0.02},
            {"blocks.0.attention.query.bias", 0}};
  }
  if (init == "fan-in") {
    return {{"embedding.weight", 1},
            {"blocks.0.attention.query.weight", 1.0 / 8},
            {"blocks.1.attention.output.weight", residual / 8},
            {"blocks.0.mlp.up.weight", 1.0 / 8},
            {"blocks.1.mlp.down.weight", residual / 16},
            {"head.weight", 1.0 / 8},
            {"position.absolute.table", 0.1},
            {"blocks.0.attention.query.bias", 0}};
  }
  const double uniform = 1 / std::sqrt(3.0);  // deviation of U(-1, 1)
  return {{"embedding.weight", 1.0 / 8},
          {"blocks.0.attention.query.weight", uniform / 8},
          {"blocks.1.attention.output.weight", uniform / 8},
          {"blocks.0.mlp.up.weight", uniform / 8},
          {"blocks.1.mlp.down.weight", uniform / 16},
          {"head.weight", uniform / 8},
          {"position.absolute.table", 1.0 / 8},
          {"blocks.0.mlp.up.bias", uniform / 8}};
}

TEST(Initializer, GivesTheDeviationsOfTheSpecification) {
  for (const std::string init : {"gpt2", "fan-in", "authors"}) {
    ModelOptions options;
    options.layers = 2;
    options.width = 64;
    options.init = init;
    const Transformer model(options, EncodingChoice::parse("absolute"), 32, 64, 1);
    std::map<std::string, Tensor> parameters;
    for (const auto& [path, parameter] : model.parameters()) parameters[path] = parameter;
    for (const auto& [path, expected] : expected_deviations(init)) {
      SCOPED_TRACE(formatted("{} {}", init, path));
      const Moments found = moments_of(parameters.at(path));
      // Five standard errors of the deviation of n normal numbers, and of their mean.
      const double n = static_cast<double>(parameters.at(path).numel());
      EXPECT_NEAR(found.deviation, expected, 5 * expected / std::sqrt(2 * n));
      EXPECT_NEAR(found.mean, 0, 5 * expected / std::sqrt(n));
      if (init == "authors" && path == "blocks.0.mlp.up.weight") {
        EXPECT_LE(found.largest, 1.0 / 8);
      }
    }
    EXPECT_EQ(moments_of(parameters.at("blocks.0.attention_norm.weight")).mean, 1);
    EXPECT_EQ(moments_of(parameters.at("blocks.0.attention_norm.bias")).largest, 0);
  }
}

TEST(Norm, EpsIsTheUsualOneOrWhatIsGiven) {
  const Tensor x = Tensor::from(std::vector<double>{1e-3, -1e-3, 2e-3, 1e-3}, {1, 4});
  const auto rms = [&](double eps) { return Norm(start_f64, "rms", 4, eps).forward(x).to_vector<double>(); };
  const auto layer = [&](double eps) { return Norm(start_f64, "layer", 4, eps).forward(x).to_vector<double>(); };
  EXPECT_EQ(rms(0), rms(1e-6));
  EXPECT_EQ(layer(0), layer(1e-5));
  EXPECT_NEAR(rms(1e-3)[2], 2e-3 / std::sqrt(7e-6 / 4 + 1e-3), 1e-15);
  // Mean 0.75e-3, mean square 1.75e-6.
  EXPECT_NEAR(layer(1e-2)[2], 1.25e-3 / std::sqrt(1.75e-6 - 0.5625e-6 + 1e-2), 1e-15);
}

TEST(Mlp, ComputesItsFormula) {
  const Initializer start(3, StartValues::fan_in, DType::f64);
  const Tensor x = start.make("x", {2, 5, 4}, Fill::normal(1));
  for (const std::string activation : {"gelu", "gelu-tanh", "relu", "swiglu"}) {
    const Mlp mlp(start, 4, 6, activation, 0, 1);
    std::map<std::string, Tensor> p;
    for (const auto& [path, parameter] : mlp.parameters()) p[path] = parameter;
    EXPECT_EQ(p.contains("gate.weight"), activation == "swiglu");
    const Tensor up = matmul(x, transpose(p.at("up.weight"), 0, 1)) + p.at("up.bias");
    Tensor hidden;
    if (activation == "gelu") hidden = gelu(up);
    if (activation == "gelu-tanh") hidden = gelu_tanh(up);
    if (activation == "relu") hidden = maximum(up, Tensor::zeros({1}, DType::f64));
    if (activation == "swiglu") {
      const Tensor gate = matmul(x, transpose(p.at("gate.weight"), 0, 1)) + p.at("gate.bias");
      hidden = gate * sigmoid(gate) * up;
    }
    const Tensor y = matmul(hidden, transpose(p.at("down.weight"), 0, 1)) + p.at("down.bias");
    const std::vector<double> expected = y.to_vector<double>(), found = mlp.forward(x, {}).to_vector<double>();
    for (std::size_t n = 0; n < expected.size(); ++n) EXPECT_NEAR(found[n], expected[n], 1e-13) << activation;
  }
  EXPECT_THROW(Mlp(start, 4, 6, "tanh", 0, 1), Error);
}

}  // namespace tally::module_test
