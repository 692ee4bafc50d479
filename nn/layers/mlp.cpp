#include "nn/layers/mlp.hpp"

#include <utility>

#include "autograd/ops.hpp"
#include "core/error.hpp"

namespace tally {

namespace {

UnaryOp activation_from_text(std::string_view text) {
  if (text == "gelu") return UnaryOp::gelu;
  if (text == "gelu-tanh") return UnaryOp::gelu_tanh;
  if (text == "relu") return UnaryOp::relu;
  if (text == "swiglu") return UnaryOp::silu;
  fail("mlp", "activations are gelu, gelu-tanh, relu and swiglu, not '{}'", text);
}

}  // namespace

Mlp::Mlp(const Initializer& start, std::int64_t width, std::int64_t hidden, std::string_view activation, double dropout,
         double output_gain, WithBias bias)
    : activation_(activation_from_text(activation)),
      up_(start.at("up"), width, hidden, bias),
      down_(start.at("down"), hidden, width, bias, output_gain),
      dropout_(start, "hidden", dropout) {
  add_child("up", up_);
  if (activation == "swiglu") {
    gate_ = std::make_unique<Linear>(start.at("gate"), width, hidden, bias);
    add_child("gate", *gate_);
  }
  add_child("down", down_);
}

Tensor Mlp::forward(Tensor x, const ForwardContext& pass, Tensor residual) const {
  if (gate_ == nullptr && dropout_.rate(pass) == 0) {
    return mlp(activation_, std::move(x), {up_.weight(), up_.bias()}, {down_.weight(), down_.bias()},
               std::move(residual));
  }
  Tensor hidden = up_.forward(x);
  hidden = gate_ != nullptr ? multiply_activations(unary(activation_, gate_->forward(x)), hidden)
                            : unary(activation_, std::move(hidden));
  hidden = dropout_(hidden, pass);
  return down_.forward(std::move(hidden), std::move(residual));
}

}  // namespace tally
