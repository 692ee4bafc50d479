// The feed-forward part of a block:
//   gelu, gelu-tanh, relu  y = down(act(up(x)))                  arXiv 1606.08415: by erf; by tanh, as GPT-2 has it
//   swiglu                 y = down(silu(gate(x)) * up(x))       arXiv 2002.05202
// If matmuls round to bf16 and there is no dropout, the tensors between up and down are written in bf16, except for
// swiglu (autograd/layer.hpp).
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
  // x [..., D] -> the same shape, added to `onto` if that is defined. x may be bf16 that a norm wrote for matmuls.
  Tensor forward(Tensor x, const ForwardContext& pass, Tensor onto = {}) const;

 private:
  UnaryOp activation_;
  Linear up_;
  std::unique_ptr<Linear> gate_;  // swiglu, whose activation is silu
  Linear down_;
  Dropout dropout_;
};

}  // namespace tally
