#include "nn/layers/linear.hpp"

#include <utility>

#include "autograd/ops.hpp"

namespace tally {

Linear::Linear(const Initializer& start, std::int64_t in, std::int64_t out, WithBias with_bias, double gain) {
  weight_ = add_parameter("weight", start.make("weight", {out, in}, start.linear_weight(in, gain)));
  if (with_bias == WithBias::yes) bias_ = add_parameter("bias", start.make("bias", {out}, start.linear_bias(in)));
}

Tensor Linear::forward(Tensor x, Tensor residual, OutputPrecision precision) const {
  return linear(std::move(x), weight_, bias_, std::move(residual), precision);
}

}  // namespace tally
