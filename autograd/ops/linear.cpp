// Linear layers: matmuls with a weight and an epilogue.
//   y = x w^T + bias (+ residual)  [..., in] [out, in] -> [..., out]:
//     d_x = d_y w,  d_w = d_y^T x,  d_bias = sum of d_y's rows,  d_residual = d_y.
//   y = op(h) w_down^T + bias_down (+ residual),  h = x w_up^T + bias_up:
//     d_h = (d_y w_down) op'(h), and the gradients of `up` follow as above.
//   Several layers of one x: one batched matmul computes all results. In backward the d_y of all layers are columns of
//   one matrix, so that d_x is one matmul, and the gradients of all weights and biases another.
#include <algorithm>
#include <memory>
#include <utility>

#include "autograd/autocast.hpp"
#include "autograd/finite.hpp"
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

// The bias operand of a matmul whose result has this type. CUDA adds a bf16 bias to a bf16 result.
Tensor bias_operand(const Tensor& bias, DType result) {
  const bool rounds = bias.defined() && result == DType::bf16 && !is_cpu(bias.device());
  return rounds ? bf16_operand(bias) : bias.to_dense();
}

// x weight^T + bias (+ residual). If no one else holds the residual, it becomes the result.
Tensor affine(const Tensor& x, const LinearWeights& by, const Tensor& residual,
              OutputPrecision precision = OutputPrecision::full) {
  const Tensor rows = as_rows(x);
  const DType type = by.weight.dtype();
  const Shape matrix{rows.size(0), by.weight.size(0)}, shape = append_axes(leading_axes(x.shape()), {matrix[1]});
  Tensor y, added;
  if (residual.defined()) {
    y = reuse_or_empty(residual);
    added = residual.to_dense().detached_reshape(matrix);
  } else {
    y = Tensor::empty(shape, output_type(precision, type), x.device());
  }
  const Tensor bias = bias_operand(by.bias, y.dtype());
  multiply_into(y.detached_reshape(matrix), rows, transposed(by.weight),
                {.bias = bias.view(), .residual = added.view()});
  return y;
}

// The gradient of a weight from d_rows [R, out], the gradient of the layer's matmul of rows [R, in]. If sums_rows, also
// sets d_bias.
Tensor gradient_of_weight(const Tensor& d_rows, const Tensor& rows, bool sums_rows, Tensor& d_bias) {
  const DType type = compute_type(d_rows.dtype());
  const Tensor d_weight = Tensor::empty({d_rows.size(1), rows.size(1)}, type, rows.device());
  if (sums_rows) d_bias = Tensor::empty({d_rows.size(1)}, type, rows.device());
  multiply_into(d_weight, transposed(d_rows), rows, {.row_sums = sums_rows ? d_bias.view() : View{}});
  return d_weight;
}

// Sets the gradients of a weight and its bias (inputs n and n + 1). d_bias may be given.
void set_gradients_of_weights(Gradients& d, std::size_t n, const Tensor& d_rows, const Tensor& rows,
                              Tensor d_bias = {}) {
  if (d.wants(n)) d.set(n, gradient_of_weight(d_rows, rows, d.wants(n + 1) && !d_bias.defined(), d_bias));
  if (d.wants(n + 1)) d.set(n + 1, d_bias.defined() ? d_bias : sum_of_rows(d_rows));
}

// Sets the gradient of x (input n) from d_rows [R, out]. It is added if other layers also read x, as for queries, keys
// and values.
void set_gradient_of_x(Gradients& d, std::size_t n, const Tensor& d_rows, const Saved& weight) {
  if (const Tensor sum = d.wants(n) ? d.so_far(n) : Tensor(); sum.defined()) {
    const Tensor sum_rows = as_rows(sum);
    multiply_into(sum_rows, d_rows, weight.get(), {.residual = sum_rows.view()});
    d.added_to_it(n);
  } else if (d.wants(n)) {
    d.set(n, product(d_rows, weight.get()).detached_reshape(d.shape(n)));
  }
}

// Sets the gradients of x, weight and bias (inputs n, n + 1 and n + 2). d_bias may be given.
void set_gradients_of_linear(Gradients& d, std::size_t n, const Tensor& d_rows, const Saved& x, const Saved& weight,
                             const Tensor& d_bias = {}) {
  set_gradient_of_x(d, n, d_rows, weight);
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

// The gradients of the results of several layers, as columns of one matrix.
struct StackedGradient {
  std::int64_t layers;
  Shape heads;  // [B, H, T, d] of one layer's result
  DType dtype;
  Device device;
  std::vector<bool> is_taken, is_set;  // by layer
  Tensor rows = {};                    // [B T, layers H d]; undefined until it is needed

  // One layer's part, [B, H, T, d].
  Tensor of(std::size_t layer) {
    const std::int64_t width = heads[1] * heads[3], row = layers * width;
    if (!rows.defined()) {
      const Shape shape{heads[0] * heads[2], row};
      // finite checks read the parts that are not set yet
      rows = finite_checks() ? Tensor::zeros(shape, dtype, device) : Tensor::empty(shape, dtype, device);
    }
    Strides strides;
    strides.step = {heads[2] * row, heads[3], row, 1};
    return rows.detached_strided(heads, strides, static_cast<std::int64_t>(layer) * width);
  }
  // The same for the first caller; undefined for later ones.
  Tensor take(std::size_t layer) {
    if (is_taken[layer]) return {};
    is_taken[layer] = true;
    return of(layer);
  }
  // All parts, as the gradient of y [layers, B T, H d].
  Tensor of_results() const {
    const std::int64_t width = heads[1] * heads[3];
    Strides strides;
    strides.step = {width, layers * width, 1};
    return rows.detached_strided({layers, rows.size(0), width}, strides, 0);
  }
  // Copies the gradient of a layer to its part, unless the part already holds it. Returns whether no gradient was
  // stored before.
  bool store(std::size_t layer, const Tensor& d_y) {
    const bool first = !std::ranges::any_of(is_set, [](bool set) { return set; });
    Tensor own = of(layer);
    if (d_y.storage() != own.storage()) own.copy_from(d_y);
    is_set[layer] = true;
    return first;
  }
  // Hands over all rows. Results that no loss depends on have the gradient 0.
  Tensor take_rows() {
    for (std::size_t layer = 0; layer < is_set.size(); ++layer) {
      if (!is_set[layer]) of(layer).fill(0);
    }
    return std::exchange(rows, {});
  }
};

}  // namespace

std::vector<Tensor> linear_heads(const Tensor& given_x, const LinearWeights& all, std::span<const LinearWeights> layers,
                                 std::int64_t heads, OutputPrecision precision) {
  constexpr std::string_view name = "linear";
  const ProfileScope scope(name);
  Tensor x = given_x;
  std::vector<Tensor> inputs{x};
  Tensor learned;  // a weight that takes a gradient, if there is one
  for (const LinearWeights& layer : layers) {
    check_linear(x, layer, {});
    inputs.push_back(layer.weight);
    inputs.push_back(layer.bias);
    if (requires_grad(layer.weight)) learned = layer.weight;
  }
  const auto count = static_cast<std::int64_t>(layers.size());
  const std::int64_t in = all.weight.size(1), out = all.weight.size(0) / count;
  const Saved saved_x = learned.defined() ? save_operand(name, x, learned) : Saved();
  const Tensor cached = cache_operand(all.weight);
  const Tensor rows = as_rows(x);
  const Shape shape{count, rows.size(0), out};
  Tensor y = Tensor::empty(shape, output_type(precision, all.weight.dtype()), x.device());
  Tensor bias = bias_operand(all.bias, y.dtype());
  if (bias.defined()) bias = bias.detached_reshape({count, out});
  multiply_into(y, rows.detached_reshape({1, rows.size(0), in}).detached_broadcast(name, {count, rows.size(0), in}),
                transposed(all.weight.detached_reshape({count, out, in})), {.bias = bias.view()});

  const std::int64_t batch = x.size(0), tokens = x.size(1), width = out / heads;
  const Shape of_heads{batch, heads, tokens, width};
  const auto joined = std::make_shared<StackedGradient>(StackedGradient{
      count, of_heads, y.dtype(), y.device(), std::vector<bool>(layers.size()), std::vector<bool>(layers.size())});
  record(name, y, inputs,
         [joined, cached, saved_x, saved_weight = Saved(name, requires_grad(x) ? all.weight : Tensor()), out](
             const Tensor&, Gradients& d) {
           const Tensor d_rows = joined->take_rows(), d_cached = cache_operand(d_rows);
           set_gradient_of_x(d, 0, d_rows, saved_weight);
           const std::size_t end = 2 * joined->is_set.size() + 1;
           bool wants_weight = false, wants_bias = false;
           for (std::size_t n = 1; n < end; n += 2) {
             wants_weight = wants_weight || d.wants(n);
             wants_bias = wants_bias || d.wants(n + 1);
           }
           Tensor d_weight, d_bias;
           if (wants_weight) d_weight = gradient_of_weight(d_rows, as_rows(saved_x.get()), wants_bias, d_bias);
           if (wants_bias && !wants_weight) d_bias = sum_of_rows(d_rows);
           for (std::size_t n = 1; n < end; n += 2) {
             const std::int64_t first = static_cast<std::int64_t>(n / 2) * out;
             if (d.wants(n)) d.set_part(n, d_weight.detached_slice(0, first, first + out));
             if (d.wants(n + 1)) d.set_part(n + 1, d_bias.detached_slice(0, first, first + out));
           }
         });

  std::vector<Tensor> results;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    Strides strides;
    strides.step = {tokens * out, width, out, 1};
    Tensor result = y.detached_strided(of_heads, strides, static_cast<std::int64_t>(layer) * rows.size(0) * out);
    record(name, result, {y}, [joined, layer](const Tensor& d_y, Gradients& d) {
      if (joined->store(layer, d_y)) {
        d.set(0, joined->of_results());
      } else {
        d.added_to_it(0);
      }
    });
    if (result.autograd() != nullptr) result.autograd()->take_target = [joined, layer] { return joined->take(layer); };
    results.push_back(std::move(result));
  }
  return results;
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
    const Tensor argument = affine(rows, up, {}, OutputPrecision::matmul_input), result = empty();
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
