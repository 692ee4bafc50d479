// Normalisation of each row of x [..., N].
//   layer norm (Ba, Kiros, Hinton 2016):  y = (x - mean) rstd weight + bias,  rstd = 1 / sqrt(variance + eps)
//   RMS norm (Zhang, Sennrich 2019):      y = x rstd weight,                  rstd = 1 / sqrt(mean(x^2) + eps)
// With g = d_y weight and n = (x - mean) rstd (layer norm) or x rstd (RMS norm):
//   d_x = rstd (g - mean(g) - n mean(g n))  (layer norm),   d_x = rstd (g - n mean(g n))  (RMS norm);
//   d_weight = sum over rows of d_y n,  d_bias = sum over rows of d_y.
// Backward saves x and one or two numbers per row, and recomputes n. Without a weight n is the result itself, which is
// saved instead of x.
#include "autograd/autocast.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/profile.hpp"
#include "core/device/workspace.hpp"

namespace tally {
namespace {

void check_norm(std::string_view name, const Tensor& x, const Tensor& parameter, std::string_view which) {
  check_same_floating(name, x, parameter);
  check_rank(name, x, 1, "[..., N]");
  check(x.size(-1) > 0, name, "the last axis of shape {} is empty", x.shape());
  check(parameter.shape() == Shape{x.size(-1)}, name, "{} must have shape [{}] for x {}, got {}", which, x.size(-1),
        x.shape(), parameter.shape());
}

// Layer norm if it is centered; RMS norm has no bias.
Tensor norm(std::string_view name, bool centered, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
            OutputPrecision precision) {
  const ProfileScope scope(name);
  check_norm(name, x, weight, "weight");
  if (centered) check_norm(name, x, bias, "bias");
  const Tensor rows = as_rows(x), own_weight = weight.to_dense(), own_bias = bias.to_dense();
  const Tensor y_rows = Tensor::empty(rows.shape(), output_type(precision, x.dtype()), x.device());
  const Tensor rstd = Tensor::empty({rows.size(0)}, x.dtype(), x.device());
  const Tensor mean = centered ? Tensor::empty(rstd.shape(), x.dtype(), x.device()) : Tensor();
  const Tensor x_bf16 = needs_grad({x, weight, bias}) ? bf16_cache_to_fill(rows) : Tensor();
  kernels(x.device())
      .norm(y_rows.view(), mean.view(), rstd.view(), x_bf16.view(), rows.view(), own_weight.view(), own_bias.view(),
            eps);
  Tensor y = y_rows.detached_reshape(x.shape());
  record(name, y, {x, weight, bias},
         [centered, saved_x = save_activation(name, rows), saved_weight = Saved(name, own_weight), mean, rstd](
             const Tensor& d_y, Gradients& d) {
           const Tensor &x_rows = saved_x.get(), &factor = saved_weight.get();
           const Tensor d_y_rows = as_rows(to_f32(d_y)), sum = d.so_far(0);
           const auto empty = [&](const Shape& shape) {
             return Tensor::empty(shape, d_y_rows.dtype(), d_y_rows.device());
           };
           const bool add = sum.defined();
           const Tensor d_rows = add ? sum.detached_reshape(x_rows.shape()) : empty(x_rows.shape());
           const Tensor d_weight = empty(factor.shape()), d_bias = centered ? empty(factor.shape()) : Tensor();
           const Kernels& on = kernels(d_y.device());
           const Tensor d_bf16 = held_bf16_to_fill(d_rows);
           const Workspace workspace(on.norm_backward_workspace(x_rows.view()), d_y.device());
           on.norm_backward(d_rows.view(), d_bf16.view(), d_weight.view(), d_bias.view(), d_y_rows.view(),
                            x_rows.view(), factor.view(), mean.view(), rstd.view(), add, workspace.data());
           if (add) {
             d.added_to_it(0);
           } else {
             d.set(0, d_rows.detached_reshape(d.shape(0)));
           }
           d.set(1, d_weight);
           d.set(2, d_bias);
         });
  return y;
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, OutputPrecision precision) {
  return norm("layer_norm", true, x, weight, bias, eps, precision);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, OutputPrecision precision) {
  return norm("rms_norm", false, x, weight, {}, eps, precision);
}

Tensor rms_norm(const Tensor& x, double eps) {
  const ProfileScope scope("rms_norm");
  check_floating("rms_norm", x);
  check_rank("rms_norm", x, 1, "[..., N]");
  check(x.size(-1) > 0, "rms_norm", "the last axis of shape {} is empty", x.shape());
  const bool by_token = lies_by_token(x);
  const auto in_order = [by_token](const Tensor& of) { return by_token ? of.detached_transpose(1, 2) : of; };
  const Tensor given = in_order(x), rows = as_rows(given);
  const Tensor one = Tensor::full({rows.size(1)}, 1.0, x.dtype(), x.device());
  const Tensor rstd = Tensor::empty({rows.size(0)}, x.dtype(), x.device());
  const Tensor y_rows = Tensor::empty(rows.shape(), x.dtype(), x.device());
  kernels(x.device()).norm(y_rows.view(), {}, rstd.view(), {}, rows.view(), one.view(), {}, eps);
  Tensor y = in_order(y_rows.detached_reshape(given.shape()));
  record("rms_norm", y, {x},
         [saved = save_activation("rms_norm", y_rows), shape = given.shape(), one, rstd, in_order](const Tensor& d_y,
                                                                                                   Gradients& d) {
           const Tensor& n = saved.get();
           const Tensor d_rows = Tensor::empty(n.shape(), d_y.dtype(), d_y.device());
           const Tensor nothing = Tensor::empty({n.size(1)}, d_y.dtype(), d_y.device());
           const Tensor ones = Tensor::full({n.size(0)}, 1.0, d_y.dtype(), d_y.device());
           const Kernels& on = kernels(d_y.device());
           const Workspace workspace(on.norm_backward_workspace(n.view()), d_y.device());
           on.norm_backward(d_rows.view(), {}, nothing.view(), {}, as_rows(in_order(d_y)).view(), n.view(), one.view(),
                            {}, ones.view(), false, workspace.data());
           const Tensor factor = rstd.detached_reshape({n.size(0), 1}).detached_broadcast("rms_norm", n.shape());
           on.binary(BinaryOp::multiply, d_rows.view(), d_rows.view(), factor.view());
           d.set(0, in_order(d_rows.detached_reshape(shape)));
         });
  return y;
}

}  // namespace tally
