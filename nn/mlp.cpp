#include "nn/mlp.hpp"

#include <utility>

#include "autograd/ops.hpp"
#include "core/error.hpp"

namespace tally {

Mlp::Activation Mlp::activation_from_text(std::string_view text) {
  if (text == "gelu") return Activation::gelu;
  if (text == "gelu-tanh") return Activation::gelu_tanh;
  if (text == "relu") return Activation::relu;
  if (text == "swiglu") return Activation::swiglu;
  fail("mlp", "activations are gelu, gelu-tanh, relu and swiglu, not '", text, "'");
}

Mlp::Mlp(const Initializer& start, std::int64_t width, std::int64_t hidden, std::string_view activation, double dropout,
         double output_gain, WithBias bias)
    : activation_(activation_from_text(activation)),
      up_(start.at("up"), width, hidden, bias),
      down_(start.at("down"), hidden, width, bias, output_gain),
      dropout_(start, "hidden", dropout) {
  add_child("up", up_);
  if (activation_ == Activation::swiglu) {
    gate_ = std::make_unique<Linear>(start.at("gate"), width, hidden, bias);
    add_child("gate", *gate_);
  }
  add_child("down", down_);
}

Tensor Mlp::forward(const Tensor& x, const Pass& pass) const {
  Tensor hidden = up_.forward(x);
  switch (activation_) {
    case Activation::gelu: hidden = gelu(std::move(hidden)); break;
    case Activation::gelu_tanh: hidden = gelu_tanh(std::move(hidden)); break;
    case Activation::relu: hidden = relu(std::move(hidden)); break;
    case Activation::swiglu: hidden = multiply_activations(silu(gate_->forward(x)), hidden); break;
  }
  hidden = dropout_(hidden, pass);
  return down_.forward(std::move(hidden));
}

}  // namespace tally
