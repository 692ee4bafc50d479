// y = x Wᵀ + b.
#pragma once

#include "autograd/autocast.hpp"
#include "nn/layers/init.hpp"
#include "nn/module.hpp"

namespace tally {

enum class WithBias : bool { no, yes };

// Parameters: weight [out, in], bias [out].
class Linear final : public Module {
 public:
  // gain: see Initializer::linear_weight.
  Linear(const Initializer& start, std::int64_t in, std::int64_t out, WithBias with_bias = WithBias::yes,
         double gain = 1);
  // x [..., in] -> [..., out], plus the residual if it is defined
  Tensor forward(Tensor x, Tensor residual = {}, OutputPrecision precision = OutputPrecision::full) const;
  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }  // undefined without bias

 private:
  Tensor weight_;
  Tensor bias_;  // undefined without bias
};

// The weights [layers out, in] and biases [layers out] of linear layers of the same input. The parameters of each layer
// are views of them, so that a GPU computes all layers by one matmul (linear_heads).
class StackedParameters {
 public:
  StackedParameters() = default;
  StackedParameters(const Initializer& start, std::int64_t layers, std::int64_t in, std::int64_t out,
                    WithBias with_bias);
  // An initializer for the constructor of the next layer: parameters are views, with start values of `start`. Returns
  // `start` if this is undefined.
  Initializer next(const Initializer& start);
  bool defined() const { return weight_.defined(); }
  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }  // undefined without bias

 private:
  Tensor weight_, bias_;
  std::int64_t given_ = 0;  // layers that have their parameters
};

}  // namespace tally
