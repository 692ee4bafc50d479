// The feed-forward part of a block:
//   gelu, gelu-tanh, relu  y = down(act(up(x)))                  arXiv 1606.08415: by erf; by tanh, as GPT-2 has it
//   swiglu                 y = down(silu(gate(x)) * up(x))       arXiv 2002.05202
// Without dropout and gate it is one operation, mlp() in autograd/ops.hpp.
#pragma once

#include <memory>
#include <string_view>

#include "core/device/op_kinds.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/linear.hpp"

namespace tally {

// Children: up and gate (swiglu only) [hidden, D], down [D, hidden], all with bias or none.
class Mlp final : public Module {
 public:
  // dropout: rate on the hidden layer. output_gain: gain of down's weight.
  Mlp(const Initializer& start, std::int64_t width, std::int64_t hidden, std::string_view activation, double dropout,
      double output_gain, WithBias bias = WithBias::yes);
  // x [..., D] -> the same shape, plus the residual if it is defined. x may be a matmul_input.
  Tensor forward(Tensor x, const ForwardContext& pass, Tensor residual = {}) const;

 private:
  UnaryOp activation_;
  Linear up_;
  std::unique_ptr<Linear> gate_;  // swiglu, whose activation is silu
  Linear down_;
  Dropout dropout_;
};

}  // namespace tally
