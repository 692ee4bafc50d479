#include "nn/layers/linear.hpp"

#include <utility>

#include "autograd/ops.hpp"

namespace tally {

Linear::Linear(const Initializer& start, std::int64_t in, std::int64_t out, WithBias with_bias, double gain) {
  weight_ = add_parameter("weight", start.make("weight", {out, in}, start.linear_weight(in, gain)));
  if (with_bias == WithBias::yes) bias_ = add_parameter("bias", start.make("bias", {out}, start.linear_bias(in)));
  add_matmul_operand(weight_);
  add_matmul_operand(bias_);
}

Tensor Linear::forward(Tensor x, Tensor residual, OutputPrecision precision) const {
  return linear(std::move(x), weight_, bias_, std::move(residual), precision);
}

StackedParameters::StackedParameters(const Initializer& start, std::int64_t layers, std::int64_t in, std::int64_t out,
                                     WithBias with_bias)
    : weight_(Tensor::empty({layers * out, in}, start.dtype(), start.device())) {
  if (with_bias == WithBias::yes) bias_ = Tensor::empty({layers * out}, start.dtype(), start.device());
}

Initializer StackedParameters::next(const Initializer& start) {
  if (!defined()) return start;
  const auto take = [this, start, layer = given_++](const std::string&, const Shape& shape, const Fill& fill) {
    const bool is_weight = shape.rank == 2;
    Tensor part = (is_weight ? weight_ : bias_).detached_slice(0, layer * shape[0], (layer + 1) * shape[0]);
    part.copy_from(start.make(is_weight ? "weight" : "bias", shape, fill));
    return part;
  };
  return start.with_source(take);
}

}  // namespace tally
