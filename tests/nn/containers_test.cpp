// Lists and sequences of modules, and modules in files.
#include "nn/containers.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include <tally/tally.hpp>
#include "core/io/safetensors.hpp"
#include "nn/layers/dropout.hpp"
#include "tests/error_of.hpp"

namespace tally::containers_test {

std::vector<std::string> paths_of(const Module& module) {
  std::vector<std::string> paths;
  for (const auto& [path, parameter] : module.parameters()) paths.push_back(path);
  return paths;
}

Tensor doubled(const Tensor& x) { return x * 2.0; }

TEST(Sequential, AppliesItsLayersInOrder) {
  Sequential model(Initializer(1));
  model.add<Linear>(2, 3).add(relu).add([](const Tensor& x) { return x + 1.0; }).add(doubled).add<Linear>(3, 1);
  EXPECT_EQ(paths_of(model), (std::vector<std::string>{"0.weight", "0.bias", "4.weight", "4.bias"}));
  const Linear first(Initializer(1).at("0"), 2, 3), last(Initializer(1).at("4"), 3, 1);
  const Tensor x = Tensor::from({{1, 2}, {-3, 4}});
  EXPECT_EQ(model.forward(x).to_vector<float>(), last.forward((relu(first.forward(x)) + 1.0) * 2.0).to_vector<float>());
}

TEST(Sequential, PassesTheContextToLayersThatTakeIt) {
  Sequential model(Initializer(1));
  model.add<Mlp>(4, 8, "gelu", /*dropout=*/0.5, /*output_gain=*/1);
  const Tensor x = Tensor::ones({1, 4});
  const Tensor without = model.forward(x), with = model.forward(x, {.training = true});
  EXPECT_NE(without.to_vector<float>(), with.to_vector<float>());
}

TEST(ModuleList, NamesItsModulesByTheirPlace) {
  ModuleList<Linear> list(Initializer(1).at("layers"));
  list.add(2, 3);
  EXPECT_EQ(list.add(3, 1, WithBias::no).weight().shape(), (Shape{1, 3}));
  EXPECT_EQ(list.size(), 2);
  EXPECT_EQ(paths_of(list), (std::vector<std::string>{"0.weight", "0.bias", "1.weight"}));
  const Linear same(Initializer(1).at("layers").at("1"), 3, 1, WithBias::no);
  EXPECT_EQ(list[1].weight().to_vector<float>(), same.weight().to_vector<float>());
}

// A parameter that must not be negative.
class Positive final : public Module {
 public:
  Positive() : value_(add_parameter("value", Tensor::ones({1}))) {}
  void project_parameters() const override {
    Tensor value = value_.detach();
    value.copy_from(relu(value));
  }

 private:
  Tensor value_;
};
class Parent final : public Module {
 public:
  Parent() {
    add_child("child", child_);
    Tensor frozen = add_parameter("frozen", Tensor::ones({1}));
    set_requires_grad(frozen, false);
  }

 private:
  Positive child_;
};

TEST(Module, IsProjectedAfterAStep) {
  Parent parent;
  OptimizerOptions options;
  options.name = "sgd", options.lr = 10;
  const auto optimizer = Optimizer::make(options, parent);
  set_gradient(parent.parameters()[1].second, Tensor::ones({1}));
  optimizer->step();
  EXPECT_EQ(parent.parameters()[0].first, "frozen");
  EXPECT_EQ(parent.parameters()[0].second.item(), 1);
  EXPECT_EQ(parent.parameters()[1].second.item(), 0);
}

class ModuleFile : public ::testing::Test {
 protected:
  ~ModuleFile() override { std::filesystem::remove(path_); }
  std::string path_ =
      (std::filesystem::temp_directory_path() / formatted("tally_module_{}.safetensors", ::getpid())).string();
};

TEST_F(ModuleFile, GivesTheSavedParametersBack) {
  const Linear saved(Initializer(1), 2, 3);
  Linear loaded(Initializer(2), 2, 3);
  save(saved, path_);
  load(loaded, path_);
  EXPECT_EQ(loaded.weight().to_vector<float>(), saved.weight().to_vector<float>());
  EXPECT_TRUE(loaded.weight().requires_grad());
}

TEST_F(ModuleFile, NamesWhatDoesNotFit) {
  Linear module(Initializer(1), 2, 3);
  const std::vector<float> before = module.weight().to_vector<float>();
  EXPECT_NE(testing::error_of([&] { load(module, path_); }).find(path_), std::string::npos);
  save(Linear(Initializer(1), 2, 4, WithBias::no), path_);
  EXPECT_EQ(testing::error_of([&] { load(module, path_); }),
            "[load] weight is f32 [4, 2] but must be f32 [3, 2]; bias is missing, in " + path_);
  EXPECT_EQ(module.weight().to_vector<float>(), before);
}

}  // namespace tally::containers_test
