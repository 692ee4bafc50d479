// Linear layers: matmuls with a weight and an epilogue.
//   y = x w^T + bias (+ residual)  [..., in] [out, in] -> [..., out]:
//     d_x = d_y w,  d_w = d_y^T x,  d_bias = sum of d_y's rows,  d_residual = d_y.
//   y = op(h) w_down^T + bias_down (+ residual),  h = x w_up^T + bias_up:
//     d_h = (d_y w_down) op'(h), and the gradients of `up` follow as above.
#include <utility>

#include "autograd/autocast.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/ops/product.hpp"
#include "autograd/profile.hpp"
#include "core/device/backend.hpp"

namespace tally {
namespace {

// Checks x [..., in], weight [out, in] and, if they are defined, bias [out] and residual [..., out].
void check_linear(const Tensor& x, const LinearWeights& by, const Tensor& residual) {
  constexpr std::string_view name = "linear";
  const Tensor &weight = by.weight, &bias = by.bias;
  check_floating(name, weight);
  check_matmul_input(name, x, weight);
  check_rank(name, x, 1, "[..., in]");
  check(weight.rank() == 2, name, "weight must have shape [out, in], got {}", weight.shape());
  check(x.size(-1) == weight.size(1), name, "x {} does not fit the weight {} [out, in]: {} and {} inputs", x.shape(),
        weight.shape(), x.size(-1), weight.size(1));
  if (bias.defined()) {
    check_same_floating(name, weight, bias);
    check(bias.shape() == Shape{weight.size(0)}, name, "bias must have shape [{}] for the weight {}, got {}",
          weight.size(0), weight.shape(), bias.shape());
  }
  if (!residual.defined()) return;
  check_same_floating(name, weight, residual);
  const Shape result = append_axes(leading_axes(x.shape()), {weight.size(0)});
  check(residual.shape() == result, name, "residual must have the shape of the result, {}, got {}", result,
        residual.shape());
}

// a b for matrices.
Tensor product(const Tensor& a, const Tensor& b, OutputPrecision precision = OutputPrecision::full) {
  const DType dtype = output_type(precision, compute_type(a.dtype()));
  const Tensor c = Tensor::empty({a.size(0), b.size(1)}, dtype, a.device());
  multiply_into(c, a, b);
  return c;
}

// x weight^T + bias (+ residual). If no one else holds the residual, it becomes the result.
Tensor affine(const Tensor& x, const LinearWeights& by, const Tensor& residual,
              OutputPrecision precision = OutputPrecision::full) {
  const Tensor rows = as_rows(x), bias = by.bias.to_dense();
  const DType type = by.weight.dtype();
  const Shape matrix{rows.size(0), by.weight.size(0)}, shape = append_axes(leading_axes(x.shape()), {matrix[1]});
  Tensor y, added;
  if (residual.defined()) {
    y = reuse_or_empty(residual);
    added = residual.to_dense().detached_reshape(matrix);
  } else {
    y = Tensor::empty(shape, output_type(precision, type), x.device());
  }
  multiply_into(y.detached_reshape(matrix), rows, transposed(by.weight),
                {.bias = bias.view(), .residual = added.view()});
  return y;
}

// Sets the gradients of a weight and its bias (inputs n and n + 1) from d_rows [R, out], the gradient of the layer's
// matmul of rows [R, in]. d_bias may be given.
void set_gradients_of_weights(Gradients& d, std::size_t n, const Tensor& d_rows, const Tensor& rows,
                              Tensor d_bias = {}) {
  if (d.wants(n)) {
    const DType type = compute_type(d_rows.dtype());
    const Tensor d_weight = Tensor::empty({d_rows.size(1), rows.size(1)}, type, rows.device());
    const bool sums = d.wants(n + 1) && !d_bias.defined();
    if (sums) d_bias = Tensor::empty({d_rows.size(1)}, type, rows.device());
    multiply_into(d_weight, transposed(d_rows), rows, {.row_sums = sums ? d_bias.view() : View{}});
    d.set(n, d_weight);
  }
  if (d.wants(n + 1)) d.set(n + 1, d_bias.defined() ? d_bias : sum_of_rows(d_rows));
}

// Sets the gradients of x, weight and bias (inputs n, n + 1 and n + 2) from d_rows [R, out], the gradient of the
// layer's matmul. The gradient of x is added if other layers also read x, as for queries, keys and values. d_bias may
// be given.
void set_gradients_of_linear(Gradients& d, std::size_t n, const Tensor& d_rows, const Saved& x, const Saved& weight,
                             const Tensor& d_bias = {}) {
  if (const Tensor sum = d.wants(n) ? d.so_far(n) : Tensor(); sum.defined()) {
    const Tensor sum_rows = as_rows(sum);
    multiply_into(sum_rows, d_rows, weight.get(), {.residual = sum_rows.view()});
    d.added_to_it(n);
  } else if (d.wants(n)) {
    d.set(n, product(d_rows, weight.get()).detached_reshape(d.shape(n)));
  }
  set_gradients_of_weights(d, n + 1, d_rows, d.wants(n + 1) ? as_rows(x.get()) : Tensor(), d_bias);
}

}  // namespace

Tensor linear(Tensor x, const Tensor& weight, const Tensor& bias, Tensor residual, OutputPrecision precision) {
  constexpr std::string_view name = "linear";
  const ProfileScope scope(name);
  check_linear(x, {weight, bias}, residual);
  const Saved saved_x = save_operand(name, x, weight);
  const Tensor cached = cache_operand(weight);
  Tensor y = affine(x, {weight, bias}, residual, precision);
  record(name, y, {x, weight, bias, residual},
         [cached, saved_x, saved_weight = Saved(name, requires_grad(x) ? weight : Tensor())](const Tensor& d_y,
                                                                                             Gradients& d) {
           const Tensor d_rows = as_rows(d_y), d_cached = cache_operand(d_rows);
           set_gradients_of_linear(d, 0, d_rows, saved_x, saved_weight);
           d.set(3, d_y);
         });
  return y;
}

namespace {

// op(rows weight^T + bias) as a matmul input, and the argument of op' unless that is the result.
struct Activated {
  Tensor result, argument;
};
Activated activated(UnaryOp op, const Tensor& rows, const LinearWeights& up, bool keeps_argument) {
  const DType dtype = output_type(OutputPrecision::matmul_input, up.weight.dtype());
  const Shape shape{rows.size(0), up.weight.size(0)};
  const auto empty = [&] { return Tensor::empty(shape, dtype, rows.device()); };
  if (!is_cpu(rows.device())) {
    const Tensor argument = affine(rows, up, {}).to(dtype), result = empty();
    kernels(rows.device()).unary(op, 0, result.view(), argument.view());
    return {result, keeps_argument ? argument : Tensor()};
  }
  const Tensor bias = up.bias.to_dense(), result = empty(), argument = keeps_argument ? empty() : Tensor();
  multiply_into(
      result, rows, transposed(up.weight),
      {.bias = bias.view(), .activation = Epilogue::Activation::apply, .op = op, .argument = argument.view()});
  return {result, argument};
}

// (d_rows weight) op'(argument) in the argument's type, and on the CPU the sum of its rows. In bf16 it overwrites the
// argument if no one else holds that.
struct ActivatedGradient {
  Tensor d_rows, d_bias;
};
ActivatedGradient gradient_of_activated(UnaryOp op, const Tensor& d_rows, const Tensor& weight,
                                        const Tensor& argument) {
  const bool is_bf16 = argument.dtype() == DType::bf16;
  const Tensor d_argument =
      is_bf16 ? reuse_or_empty(argument) : Tensor::empty(argument.shape(), argument.dtype(), argument.device());
  // The precision may have changed since forward saved the argument.
  if (is_cpu(d_rows.device()) && is_bf16 == matmul_uses_bf16(weight.dtype())) {
    const Tensor d_bias = Tensor::empty({weight.size(1)}, weight.dtype(), d_rows.device());
    multiply_into(d_argument, d_rows, weight,
                  {.activation = Epilogue::Activation::derivative,
                   .op = op,
                   .argument = argument.view(),
                   .column_sums = d_bias.view()});
    return {d_argument, d_bias};
  }
  const auto precision = is_bf16 ? OutputPrecision::matmul_input : OutputPrecision::full;
  const Tensor d_result = product(d_rows, weight, precision).to(argument.dtype());
  kernels(d_rows.device()).unary_backward(op, 0, d_argument.view(), d_result.view(), argument.view());
  return {d_argument, {}};
}

}  // namespace

Tensor mlp(UnaryOp op, Tensor x, const LinearWeights& up, const LinearWeights& down, Tensor residual) {
  check_defined("linear", x);
  if (!matmul_uses_bf16(up.weight.dtype()) && !is_cpu(x.device())) {
    Tensor hidden = unary(op, linear(std::move(x), up.weight, up.bias));
    return linear(std::move(hidden), down.weight, down.bias, std::move(residual));
  }
  constexpr std::string_view name = "mlp";
  const ProfileScope scope(name);
  check_linear(x, up, {});
  const bool wants_hidden = needs_grad({x, up.weight, up.bias}), from_output = unary_needs_output(op);
  const bool saves_result = needs_grad({down.weight}) || (wants_hidden && from_output);
  const Saved saved_x = save_operand(name, x, up.weight);
  const Tensor cached_up = cache_operand(up.weight), cached_down = cache_operand(down.weight);
  const Activated hidden = activated(op, as_rows(x), up, wants_hidden && !from_output);
  const Tensor result = hidden.result.detached_reshape(append_axes(leading_axes(x.shape()), {up.weight.size(0)}));
  check_linear(result, down, residual);
  Tensor y = affine(result, down, residual);
  record(name, y, {x, up.weight, up.bias, down.weight, down.bias, residual},
         [op, from_output, cached_up, cached_down, saved_x, saved_argument = hidden.argument,
          saved_result = saves_result ? hidden.result : Tensor(),
          saved_up = Saved(name, requires_grad(x) ? up.weight : Tensor()),
          saved_down = Saved(name, wants_hidden ? down.weight : Tensor())](const Tensor& d_y, Gradients& d) mutable {
           const Tensor d_rows = as_rows(d_y), d_cached = cache_operand(d_rows);
           set_gradients_of_weights(d, 3, d_rows, saved_result);
           d.set(5, d_y);
           if (!d.wants(0) && !d.wants(1) && !d.wants(2)) return;
           const Tensor argument = std::move(from_output ? saved_result : saved_argument);
           saved_result = {};
           const ActivatedGradient of_hidden = gradient_of_activated(op, d_rows, saved_down.get(), argument);
           set_gradients_of_linear(d, 0, of_hidden.d_rows, saved_x, saved_up, of_hidden.d_bias);
         });
  return y;
}

}  // namespace tally
