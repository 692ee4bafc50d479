// The kinds of elementwise operations and reductions, and the epilogue of a matrix product.
#pragma once

#include <cstdint>

#include "core/view.hpp"

namespace tally {

// parameter: the number c of the last group, unused elsewhere.
enum class UnaryOp : std::uint8_t {
  negate,
  absolute,
  square,
  sqrt,
  reciprocal,
  exp,
  log,
  sin,
  cos,
  sigmoid,
  tanh,
  relu,
  gelu,       // x Phi(x), Phi by erf
  gelu_tanh,  // x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2
  silu,       // x sigmoid(x)
  softplus,   // max(x, 0) + log1p(exp(-|x|))
  add_scalar,
  multiply_scalar,
  power,      // x + c, c x, x^c
  leaky_relu  // x for x > 0, else c x, c >= 0
};

// Whether the derivative is computed from the result (else from the argument).
constexpr bool unary_needs_output(UnaryOp op) {
  return op == UnaryOp::exp || op == UnaryOp::sqrt || op == UnaryOp::reciprocal || op == UnaryOp::sigmoid ||
         op == UnaryOp::tanh || op == UnaryOp::relu || op == UnaryOp::leaky_relu;
}
// The activations of an MLP.
constexpr bool is_activation(UnaryOp op) {
  return op == UnaryOp::relu || op == UnaryOp::gelu || op == UnaryOp::gelu_tanh || op == UnaryOp::silu;
}
// Whether the derivative needs neither.
constexpr bool unary_is_linear(UnaryOp op) {
  return op == UnaryOp::negate || op == UnaryOp::add_scalar || op == UnaryOp::multiply_scalar;
}

enum class BinaryOp : std::uint8_t { add, subtract, multiply, divide, maximum, minimum };
enum class CompareOp : std::uint8_t { less, less_equal, equal };
enum class ReduceOp : std::uint8_t { sum, maximum };

// The epilogue of a matmul: how it writes its sums s.
struct Epilogue {
  // c = r = alpha s, + bias [N] on each row, + residual, which has the layout of c, or is c. On CUDA the matrices of a
  // c of rank 3 may each have a bias, [matrices, N].
  double alpha = 1.0;
  View bias = {};
  View residual = {};
  // The activation between the two layers of an MLP. c must be one row-major matrix on the CPU, without a residual:
  //   apply       c = op(r), with r rounded to c's type; the rounded r is written to `argument`, if set
  //   derivative  c = r op'(argument); for relu the argument may be its result; in bf16 c may overwrite it
  enum class Activation : std::uint8_t { none, apply, derivative } activation = Activation::none;
  UnaryOp op = UnaryOp::gelu;  // relu, gelu, gelu_tanh or silu
  View argument = {};          // as c
  View column_sums = {};       // [N]: of c before rounding, in the type of the computation; only with derivative
  // [M]: the sum of each row of a, in c's type; only if matmul_sums_rows(). For a layer's weight, c = d_y^T x, this is
  // the gradient of the bias.
  View row_sums = {};
};

}  // namespace tally
