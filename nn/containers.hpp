// Modules of modules: a list, and layers one after the other.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/forward_context.hpp"
#include "nn/layers/init.hpp"
#include "nn/module.hpp"

namespace tally {

// Children "0", "1", ...
template <class Layer>
class ModuleList final : public Module {
 public:
  explicit ModuleList(Initializer start) : start_(std::move(start)) {}

  // Appends Layer(start.at("<index>"), arguments...).
  template <class... Arguments>
  Layer& add(Arguments&&... arguments) {
    const std::string name = std::to_string(size());
    layers_.push_back(std::make_unique<Layer>(start_.at(name), std::forward<Arguments>(arguments)...));
    add_child(name, *layers_.back());
    return *layers_.back();
  }

  std::int64_t size() const { return std::ssize(layers_); }
  Layer& operator[](std::int64_t n) const { return *layers_[static_cast<std::size_t>(n)]; }

 private:
  Initializer start_;
  std::vector<std::unique_ptr<Layer>> layers_;
};

// Layers and functions, each applied to the result of the one before:
//   Sequential model(Initializer(1));
//   model.add<Linear>(2, 16).add(relu).add<Linear>(16, 1);
// A child's name is its place, counted from 0, functions included: the parameters are 0.weight, 0.bias, 2.weight, ...
class Sequential final : public Module {
 public:
  explicit Sequential(Initializer start) : start_(std::move(start)) {}

  // Appends Layer(start.at("<index>"), arguments...). Its forward takes a tensor, or a tensor and the context of the
  // pass.
  template <class Layer, class... Arguments>
  requires std::derived_from<Layer, Module> Sequential& add(Arguments&&... arguments) {
    const std::string name = std::to_string(steps_.size());
    const auto layer = std::make_shared<Layer>(start_.at(name), std::forward<Arguments>(arguments)...);
    add_child(name, *layer);
    steps_.push_back([layer](const Tensor& x, const ForwardContext& pass) {
      if constexpr (requires { layer->forward(x, pass); }) {
        return layer->forward(x, pass);
      } else {
        return (void)pass, layer->forward(x);
      }
    });
    return *this;
  }
  // Appends a function of one tensor: an operation, or anything that can be called.
  Sequential& add(Tensor (*function)(const Tensor& x)) { return add<>(function); }
  template <std::invocable<const Tensor&> Function>
  Sequential& add(Function function) {
    steps_.push_back([function](const Tensor& x, const ForwardContext&) { return function(x); });
    return *this;
  }

  Tensor forward(const Tensor& x, const ForwardContext& pass = {}) const {
    Tensor y = x;
    for (const auto& step : steps_) y = step(y, pass);
    return y;
  }

 private:
  Initializer start_;
  std::vector<std::function<Tensor(const Tensor&, const ForwardContext&)>> steps_;
};

}  // namespace tally
