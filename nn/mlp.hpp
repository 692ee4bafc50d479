// The feed-forward part of a block:
//   gelu, gelu-tanh, relu  y = down(act(up(x)))                  arXiv 1606.08415: by erf; by tanh, as GPT-2 has it
//   swiglu                 y = down(silu(gate(x)) * up(x))       arXiv 2002.05202
// Where products round to bf16 and nothing is dropped, what lies between up and down is written in it, but for swiglu
// (autograd/layer.hpp).
#pragma once

#include <memory>
#include <string_view>

#include "core/op_kinds.hpp"
#include "nn/dropout.hpp"
#include "nn/linear.hpp"

namespace tally {

// Children: up and gate (swiglu only) [hidden, D], down [D, hidden], all with bias or none.
class Mlp final : public Module {
 public:
  // dropout: rate on the hidden layer. output_gain: of down's weight.
  Mlp(const Initializer& start, std::int64_t width, std::int64_t hidden, std::string_view activation, double dropout,
      double output_gain, WithBias bias = WithBias::yes);
  // x [..., D] -> the same shape, onto which it is added, if that is there. x may be what a norm wrote for products.
  Tensor forward(Tensor x, const Pass& pass, Tensor onto = {}) const;

 private:
  UnaryOp activation_;
  Linear up_;
  std::unique_ptr<Linear> gate_;  // swiglu, whose activation is silu
  Linear down_;
  Dropout dropout_;
};

}  // namespace tally
