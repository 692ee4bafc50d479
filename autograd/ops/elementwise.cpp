// Elementwise operations: functions of one and of two operands, comparisons, and selection. Operands of different
// shapes broadcast by the NumPy rule; the gradient of a broadcast operand is summed back to its shape (sum_to).
#include <array>
#include <cstddef>
#include <utility>

#include "autograd/autocast.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/profile.hpp"

namespace tally {
namespace {

constexpr std::string_view name_of(UnaryOp op) {
  constexpr std::array<std::string_view, 20> names = {
      "negate", "abs",  "square", "sqrt",      "reciprocal", "exp",      "log", "sin",      "cos",   "sigmoid",
      "tanh",   "relu", "gelu",   "gelu_tanh", "silu",       "softplus", "add", "multiply", "power", "leaky_relu"};
  static_assert(names.size() == static_cast<std::size_t>(UnaryOp::leaky_relu) + 1);
  return names[static_cast<std::size_t>(op)];
}

constexpr std::string_view name_of(BinaryOp op) {
  constexpr std::array<std::string_view, 6> names = {"add", "subtract", "multiply", "divide", "maximum", "minimum"};
  static_assert(names.size() == static_cast<std::size_t>(BinaryOp::minimum) + 1);
  return names[static_cast<std::size_t>(op)];
}

constexpr std::string_view name_of(CompareOp op) {
  constexpr std::array<std::string_view, 3> names = {"less", "less_equal", "equal"};
  return names[static_cast<std::size_t>(op)];
}

// x in the shape of a result that it broadcasts to.
View broadcast(const Tensor& x, const Tensor& y) { return x.detached_broadcast("broadcast", y.shape()).view(); }

// An empty tensor for the result of an operation on numbers.
Tensor broadcast_result(std::string_view name, const Tensor& a, const Tensor& b, DType dtype) {
  check_same_type(name, a, b);
  check_numbers(name, a);
  return Tensor::empty(broadcast_shapes(name, a.shape(), b.shape()), dtype, a.device());
}

// condition ? d_y : 0, or with flip the reverse, summed to `shape`: the gradient of a selected operand.
Tensor gradient_where(const Tensor& condition, const Tensor& d_y, bool flip, const Shape& shape) {
  const Tensor zero = Tensor::scalar(0.0, d_y.dtype(), d_y.device());
  return sum_to(flip ? where(condition, zero, d_y) : where(condition, d_y, zero), shape);
}

Backward derivative_of_product(Saved a, Saved b) {
  return [saved_a = std::move(a), saved_b = std::move(b)](const Tensor& d_y, Gradients& d) {
    const auto times = [&d_y](const Saved& saved) {
      const Tensor& x = saved.get();
      return x.dtype() == d_y.dtype() ? multiply(d_y, x) : multiply_activations(to_f32(x), d_y);
    };
    if (d.wants(0)) d.set(0, sum_to(times(saved_b), d.shape(0)));
    if (d.wants(1)) d.set(1, sum_to(times(saved_a), d.shape(1)));
  };
}

//   y = a + b       d_a = d_y            d_b = d_y;
//   y = a - b       d_a = d_y            d_b = -d_y;
//   y = a b         d_a = d_y b          d_b = d_y a;
//   y = a / b       d_a = d_y / b        d_b = -d_a y;
//   y = max(a, b)   d_a = d_y [a >= b]   d_b = d_y [a < b];
//   y = min(a, b)   d_a = d_y [a <= b]   d_b = d_y [a > b].
Backward binary_derivative(BinaryOp op, const Tensor& a, const Tensor& b, const Tensor& y) {
  switch (op) {
    case BinaryOp::add:
    case BinaryOp::subtract:
      return [op](const Tensor& d_y, Gradients& d) {
        if (d.wants(0)) d.set(0, sum_to(d_y, d.shape(0)));
        if (!d.wants(1)) return;
        const Tensor d_b = sum_to(d_y, d.shape(1));
        d.set(1, op == BinaryOp::add ? d_b : negate(d_b));
      };
    case BinaryOp::multiply:
      return derivative_of_product(Saved("multiply", requires_grad(b) ? a : Tensor()),
                                   Saved("multiply", requires_grad(a) ? b : Tensor()));
    case BinaryOp::divide:
      return [kept_b = Saved("divide", b), kept_y = Saved("divide", requires_grad(b) ? y : Tensor())](const Tensor& d_y,
                                                                                                      Gradients& d) {
        const Tensor d_a = divide(d_y, kept_b.get());
        if (d.wants(0)) d.set(0, sum_to(d_a, d.shape(0)));
        if (d.wants(1)) d.set(1, negate(sum_to(multiply(d_a, kept_y.get()), d.shape(1))));
      };
    case BinaryOp::maximum:
    case BinaryOp::minimum:
      return
          [a_chosen = op == BinaryOp::maximum ? less_equal(b, a) : less_equal(a, b)](const Tensor& d_y, Gradients& d) {
            if (d.wants(0)) d.set(0, gradient_where(a_chosen, d_y, false, d.shape(0)));
            if (d.wants(1)) d.set(1, gradient_where(a_chosen, d_y, true, d.shape(1)));
          };
  }
  return {};
}

}  // namespace

// d_x = d_y op'(x). op' is computed from the result if unary_needs_output(op), from neither if unary_is_linear(op),
// otherwise from the argument.
Tensor unary(UnaryOp op, Tensor x, double parameter) {
  const std::string_view name = name_of(op);
  const ProfileScope scope(name);
  check_floating(name, x);
  const auto save = [&](const Tensor& value) {
    return is_activation(op) ? save_activation(name, value) : Saved(name, value);
  };
  const bool from_output = unary_needs_output(op);
  Saved saved;
  if (!unary_is_linear(op) && !from_output) saved = save(x);
  Tensor y = reuse_or_empty(x);
  kernels(x.device()).unary(op, parameter, y.view(), x.view());
  if (!unary_is_linear(op) && from_output) saved = save(y);
  record(name, y, {x}, [op, parameter, saved](const Tensor& d_y, Gradients& d) {
    const Tensor d_x = reuse_or_empty(d_y);
    kernels(d_y.device()).unary_backward(op, parameter, d_x.view(), d_y.view(), saved.get().view());
    d.set(0, d_x);
  });
  return y;
}

Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b) {
  const std::string_view name = name_of(op);
  const ProfileScope scope(name);
  Tensor y = broadcast_result(name, a, b, a.dtype());
  kernels(y.device()).binary(op, y.view(), broadcast(a, y), broadcast(b, y));
  if (needs_grad({a, b})) record(name, y, {a, b}, binary_derivative(op, a, b, y));
  return y;
}

Tensor compare(CompareOp op, const Tensor& a, const Tensor& b) {
  const std::string_view name = name_of(op);
  const ProfileScope scope(name);
  const Tensor y = broadcast_result(name, a, b, DType::boolean);
  kernels(y.device()).compare(op, y.view(), broadcast(a, y), broadcast(b, y));
  return y;
}

Tensor multiply_activations(Tensor a, const Tensor& b) {
  constexpr std::string_view name = "multiply";
  const ProfileScope scope(name);
  check_same_floating(name, a, b);
  check(a.shape() == b.shape(), name, "activations must have one shape: got {} and {}", a.shape(), b.shape());
  const Saved saved_a = save_activation(name, requires_grad(b) ? a : Tensor());
  const Saved saved_b = save_activation(name, requires_grad(a) ? b : Tensor());
  Tensor y = reuse_or_empty(a);
  kernels(y.device()).binary(BinaryOp::multiply, y.view(), a.view(), b.view());
  record(name, y, {a, b}, derivative_of_product(saved_a, saved_b));
  return y;
}

// d_a = d_y if the condition holds, else 0; d_b is the reverse.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const ProfileScope scope("where");
  check_same_type("where", a, b);
  check_same_device("where", condition, a);
  check(condition.dtype() == DType::boolean, "where", "the condition must be bool, got {} {}", condition.dtype(),
        condition.shape());
  const Shape shape = broadcast_shapes("where", condition.shape(), broadcast_shapes("where", a.shape(), b.shape()));
  Tensor y = Tensor::empty(shape, a.dtype(), a.device());
  kernels(y.device()).where(y.view(), broadcast(condition, y), broadcast(a, y), broadcast(b, y));
  record("where", y, {a, b}, [kept = Saved("where", condition)](const Tensor& d_y, Gradients& d) {
    if (d.wants(0)) d.set(0, gradient_where(kept.get(), d_y, false, d.shape(0)));
    if (d.wants(1)) d.set(1, gradient_where(kept.get(), d_y, true, d.shape(1)));
  });
  return y;
}

Tensor leaky_relu(const Tensor& x, double slope) {
  check(slope >= 0, "leaky_relu", "the slope must be at least 0, got {}", slope);
  return unary(UnaryOp::leaky_relu, x, slope);
}

}  // namespace tally
