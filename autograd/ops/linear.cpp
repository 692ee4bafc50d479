// Linear layers: matmuls with a weight and an epilogue.
//   y = x w^T + bias (+ onto)  [..., in] [out, in] -> [..., out]:
//     d_x = d_y w,  d_w = d_y^T x,  d_bias = sum of d_y's rows,  d_onto = d_y.
//   y = op(h) w_down^T + bias_down (+ onto),  h = x w_up^T + bias_up:
//     d_h = (d_y w_down) op'(h), and the gradients of `up` follow as above.
#include <memory>
#include <utility>

#include "autograd/layer.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/ops/product.hpp"
#include "autograd/profile.hpp"
#include "core/device/backend.hpp"
#include "core/rounded.hpp"

namespace tally {
namespace {

// Checks the arguments of a layer. x [..., in] is f32 or f64, or bf16 if matmuls round to it. weight [out, in]; bias
// [out] or undefined; onto [..., out] or undefined.
void check_layer(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& onto) {
  constexpr std::string_view name = "linear";
  check_floating(name, weight);
  const bool kept = x.defined() && x.dtype() == DType::bf16 && is_rounded_by_products(weight);
  if (kept) {
    check_same_device(name, x, weight);
  } else {
    check_same_floating(name, x, weight);
  }
  check_rank(name, x, 1, "[..., in]");
  check(weight.rank() == 2, name, "weight must have shape [out, in], got ", weight.shape());
  check(x.size(-1) == weight.size(1), name, "x ", x.shape(), " does not fit the weight ", weight.shape(),
        " [out, in]: ", x.size(-1), " and ", weight.size(1), " inputs");
  if (bias.defined()) {
    check_same_floating(name, weight, bias);
    check(bias.shape() == Shape{weight.size(0)}, name, "bias must have shape [", weight.size(0), "] for the weight ",
          weight.shape(), ", got ", bias.shape());
  }
  if (!onto.defined()) return;
  check_same_floating(name, weight, onto);
  const Shape result = append_axes(leading_axes(x.shape()), {weight.size(0)});
  check(onto.shape() == result, name, "what the result ", result, " is added to has shape ", onto.shape());
}

// The rows of x as the layer's matmul reads them and backward saves them. If the saved form is smaller than x, it
// replaces x, so that the layer holds no larger copy.
struct KeptRows {
  KeptRows(Tensor& x, const Tensor& weight) : rows(as_rows(x)) {
    rows.set_autograd(x.autograd());  // so that Saved recognises a leaf
    kept = Saved::rounded("linear", requires_grad(weight) ? rows : Tensor());
    if (!kept.get().defined() || kept.get().dtype() == x.dtype()) return;
    rows = kept.get();
    const std::shared_ptr<AutogradData> graph = x.autograd();
    x = rows.reshape_view(x.shape());
    x.set_autograd(graph);
  }
  Tensor rows;
  Saved kept;
};

// Whether a matmul writes bf16 itself, with an activation: on the CPU, if matmuls also read bf16.
bool writes_bf16(const Tensor& a) { return is_cpu(a.device()) && matmul_precision() == ProductPrecision::bf16; }

// a b for matrices, in f32 or f64.
Tensor product(const Tensor& a, const Tensor& b) {
  const Tensor c = Tensor::empty({a.size(0), b.size(1)}, widened(a.dtype()), a.device());
  multiply_into(c, a, b);
  return c;
}

// a b for matrices, in bf16. The device's matmul writes bf16 if the operands are bf16.
Tensor rounded_product(const Tensor& a, const Tensor& b) {
  if (matmul_precision() != ProductPrecision::bf16) return product(a, b).to(DType::bf16);
  const Tensor c = Tensor::empty({a.size(0), b.size(1)}, DType::bf16, a.device());
  const auto kept = [](const Tensor& x) { return x.dtype() == DType::bf16 ? x : rounded_to_bf16(x); };
  multiply_into(c, kept(a), kept(b));
  return c;
}

// x rounded. All matmuls that read x share it while it is held. Not needed on the CPU, where matmuls round their
// operands.
Tensor rounded_once(const Tensor& x) {
  const bool asked = x.defined() && !is_cpu(x.device()) && is_rounded_by_products(x);
  return asked ? rounded_to_bf16(x) : Tensor();
}

// rows weight^T + bias (+ onto), of this shape. If no one else holds onto, it becomes the result.
Tensor layer_of(const Tensor& rows, const Tensor& weight, const Tensor& given_bias, const Tensor& onto,
                const Shape& shape, ReadBy readers = ReadBy::anyone) {
  const Shape matrix{rows.size(0), weight.size(0)};
  const bool rounds =
      readers == ReadBy::products && !onto.defined() && is_rounded_by_products(weight) && writes_bf16(rows);
  const Tensor bias = rounds && given_bias.defined() ? given_bias.to_dense() : given_bias;
  const DType dtype = rounds ? DType::bf16 : weight.dtype();
  const Tensor y = onto.defined() ? reuse_or_empty(onto) : Tensor::empty(shape, dtype, rows.device());
  const Tensor residual = onto.defined() ? onto.to_dense().reshape_view(matrix) : Tensor();
  multiply_into(y.reshape_view(matrix), rows, transposed(weight), {.bias = bias.view(), .residual = residual.view()});
  return y;
}

// Sets the gradients of x, weight and bias (inputs n, n + 1 and n + 2) from d_rows [R, out], the gradient of the
// layer's matmul. The gradient of x is added if other layers also read x, as for queries, keys and values. d_bias may
// be given.
void set_gradients_of_layer(Gradients& d, std::size_t n, const Tensor& d_rows, const Saved& rows, const Saved& weight,
                            const Tensor& d_bias = {}) {
  if (const Tensor sum = d.wants(n) ? d.so_far(n) : Tensor(); sum.defined()) {
    const Tensor sum_rows = sum.reshape_view({d_rows.size(0), sum.size(-1)});
    multiply_into(sum_rows, d_rows, weight.get(), {.residual = sum_rows.view()});
    d.added_to_it(n);
  } else if (d.wants(n)) {
    d.set(n, product(d_rows, weight.get()).reshape_view(d.shape(n)));
  }
  if (d.wants(n + 1)) d.set(n + 1, product(transposed(d_rows), rows.get()));
  if (d.wants(n + 2)) d.set(n + 2, d_bias.defined() ? d_bias : sum_of_rows(d_rows));
}

}  // namespace

Tensor linear(Tensor x, const Tensor& weight, const Tensor& bias, Tensor onto, ReadBy readers) {
  constexpr std::string_view name = "linear";
  const ProfileScope scope(name);
  check_layer(x, weight, bias, onto);
  const Shape shape = append_axes(leading_axes(x.shape()), {weight.size(0)});
  const KeptRows of_x(x, weight);
  const Tensor rounded = rounded_once(weight);
  Tensor y = layer_of(of_x.rows, weight, bias, onto, shape, readers);
  record(name, y, {x, weight, bias, onto},
         [rounded, kept_rows = of_x.kept, kept_weight = Saved(name, requires_grad(x) ? weight : Tensor())](
             const Tensor& d_y, Gradients& d) {
           const Tensor d_rows = as_rows(d_y), once = rounded_once(d_rows);
           set_gradients_of_layer(d, 0, d_rows, kept_rows, kept_weight);
           d.set(3, d_y);
         });
  return y;
}

namespace {

// op(rows weight^T + bias) as the next matmul reads it, and the argument of op', unless that is the result.
struct Activated {
  Tensor result, argument;
};
Activated activated(UnaryOp op, const Tensor& rows, const Layer& up, bool keeps_argument) {
  const Tensor bias = up.bias.defined() ? up.bias.to_dense() : up.bias;
  const Shape shape{rows.size(0), up.weight.size(0)};
  const DType dtype = is_rounded_by_products(up.weight) ? DType::bf16 : up.weight.dtype();
  const Tensor result = Tensor::empty(shape, dtype, rows.device());
  if (is_cpu(rows.device())) {
    const Tensor argument = keeps_argument ? Tensor::empty(shape, dtype, rows.device()) : Tensor();
    multiply_into(
        result, rows, transposed(up.weight),
        {.bias = bias.view(), .activation = Epilogue::Activation::apply, .op = op, .argument = argument.view()});
    return {result, argument};
  }
  const Tensor sums = Tensor::empty(shape, DType::f32, rows.device());
  multiply_into(sums, rows, transposed(up.weight), {.bias = bias.view()});
  const Tensor argument = sums.to(dtype);
  kernels(rows.device()).unary(op, 0, result.view(), argument.view());
  return {result, keeps_argument ? argument : Tensor()};
}

// (d_rows weight) op'(argument) in the argument's type, and the sum of its rows. In bf16 it overwrites the argument if
// no one else holds that.
struct ActivatedGradient {
  Tensor d_rows, d_bias;
};
ActivatedGradient gradient_of_activated(UnaryOp op, const Tensor& d_rows, const Tensor& weight,
                                        const Tensor& argument) {
  const bool is_kept = argument.dtype() == DType::bf16;
  const Tensor d_argument =
      is_kept ? reuse_or_empty(argument) : Tensor::empty(argument.shape(), argument.dtype(), argument.device());
  // The precision may have changed since forward saved the argument.
  const bool fits = is_kept ? writes_bf16(d_rows) : !is_rounded_by_products(weight);
  if (is_cpu(d_rows.device()) && fits) {
    const Tensor d_bias = Tensor::empty({weight.size(1)}, weight.dtype(), d_rows.device());
    multiply_into(d_argument, d_rows, weight,
                  {.activation = Epilogue::Activation::derivative,
                   .op = op,
                   .argument = argument.view(),
                   .column_sums = d_bias.view()});
    return {d_argument, d_bias};
  }
  const Tensor d_result = is_kept ? rounded_product(d_rows, weight) : product(d_rows, weight);
  const View value = argument.view();
  const bool from_output = unary_needs_output(op);
  kernels(d_rows.device())
      .unary_backward(op, 0, d_argument.view(), d_result.view(), from_output ? View{} : value,
                      from_output ? value : View{});
  return {d_argument, sum_of_rows(d_argument)};
}

}  // namespace

Tensor mlp(UnaryOp op, Tensor x, const Layer& up, const Layer& down, Tensor onto) {
  check_defined("linear", x);
  if (!is_rounded_by_products(up.weight) && !is_cpu(x.device())) {
    Tensor hidden = unary(op, linear(std::move(x), up.weight, up.bias));
    return linear(std::move(hidden), down.weight, down.bias, std::move(onto));
  }
  constexpr std::string_view name = "mlp";
  const ProfileScope scope(name);
  check_layer(x, up.weight, up.bias, {});
  const Shape leading = leading_axes(x.shape()), shape = append_axes(leading, {down.weight.size(0)});
  const bool wants_hidden = needs_grad({x, up.weight, up.bias}), wants_down = needs_grad({down.weight});
  const bool from_output = unary_needs_output(op);
  const KeptRows of_x(x, up.weight);
  const Tensor rounded[] = {rounded_once(up.weight), rounded_once(down.weight)};
  const Activated hidden = activated(op, of_x.rows, up, wants_hidden && !from_output);
  check_layer(hidden.result.reshape_view(append_axes(leading, {up.weight.size(0)})), down.weight, down.bias, onto);
  Tensor y = layer_of(hidden.result, down.weight, down.bias, onto, shape);
  const bool keeps_result = wants_down || (wants_hidden && from_output);
  record(name, y, {x, up.weight, up.bias, down.weight, down.bias, onto},
         [op, from_output, once_up = rounded[0], once_down = rounded[1], kept_rows = of_x.kept,
          kept_result = keeps_result ? hidden.result : Tensor(), kept_argument = hidden.argument,
          kept_up = Saved(name, requires_grad(x) ? up.weight : Tensor()),
          kept_down = Saved(name, wants_hidden ? down.weight : Tensor())](const Tensor& d_y, Gradients& d) mutable {
           const Tensor d_rows = as_rows(d_y), once = rounded_once(d_rows);
           if (d.wants(3)) d.set(3, product(transposed(d_rows), kept_result));
           if (d.wants(4)) d.set(4, sum_of_rows(d_rows));
           d.set(5, d_y);
           if (!d.wants(0) && !d.wants(1) && !d.wants(2)) return;
           const Tensor argument = std::move(from_output ? kept_result : kept_argument);
           kept_result = {};
           const ActivatedGradient of_hidden = gradient_of_activated(op, d_rows, kept_down.get(), argument);
           set_gradients_of_layer(d, 0, of_hidden.d_rows, kept_rows, kept_up, of_hidden.d_bias);
         });
  return y;
}

}  // namespace tally
