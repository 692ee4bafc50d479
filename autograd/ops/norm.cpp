// Normalisation of each row of x [..., N].
//   layer norm (Ba, Kiros, Hinton 2016):  y = (x - mean) rstd weight + bias,  rstd = 1 / sqrt(variance + eps)
//   RMS norm (Zhang, Sennrich 2019):      y = x rstd weight,                  rstd = 1 / sqrt(mean(x^2) + eps)
// With g = d_y weight and n = (x - mean) rstd (layer norm) or x rstd (RMS norm):
//   d_x = rstd (g - mean(g) - n mean(g n))  (layer norm),   d_x = rstd (g - n mean(g n))  (RMS norm);
//   d_weight = sum over rows of d_y n,  d_bias = sum over rows of d_y.
// Backward saves x and one or two numbers per row, and recomputes n. Without a weight n is the result itself, which is
// saved instead of x.
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/profile.hpp"
#include "core/device/workspace.hpp"
#include "core/rounded.hpp"

namespace tally {
namespace {

void check_norm(std::string_view name, const Tensor& x, const Tensor& parameter, std::string_view which) {
  check_same_floating(name, x, parameter);
  check_rank(name, x, 1, "[..., N]");
  check(x.size(-1) > 0, name, "the last axis of shape ", x.shape(), " is empty");
  check(parameter.shape() == Shape{x.size(-1)}, name, which, " must have shape [", x.size(-1), "] for x ", x.shape(),
        ", got ", parameter.shape());
}

// The outputs of a norm of rows x: y, in bf16 if only matmuls read it, and x rounded, if backward saves that.
struct Written {
  Tensor y, rounded;

  Written(const Tensor& rows, ReadBy readers, bool is_recorded)
      : y(Tensor::empty(rows.shape(), y_type(rows, readers), rows.device())) {
    const bool keeps = is_recorded && is_rounded_by_products(rows) && has_all_of_its_storage(rows);
    if (keeps && rows.storage()->rounded() == nullptr)
      rounded = Tensor::empty(rows.shape(), DType::bf16, rows.device());
  }
  // Registers the rounded x, for later operations that save x rounded.
  void register_rounded(const Tensor& rows) const {
    if (rounded.defined()) rows.storage()->set_rounded(rounded.storage());
  }

 private:
  static DType y_type(const Tensor& rows, ReadBy readers) {
    return readers == ReadBy::products && is_rounded_by_products(rows) ? DType::bf16 : rows.dtype();
  }
};

// Calls backward_of(d_x, add) with rows for the gradient of input 0; with add it adds to the gradient so far.
template <class F>
void set_gradient_of_rows(Gradients& d, const Shape& rows, const Tensor& d_y, F&& backward_of) {
  if (const Tensor sum = d.so_far(0); sum.defined()) {
    backward_of(sum.reshape_view(rows), true);
    return d.added_to_it(0);
  }
  const Tensor d_x = Tensor::empty(rows, d_y.dtype(), d_y.device());
  backward_of(d_x, false);
  d.set(0, d_x.reshape_view(d.shape(0)));
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, ReadBy readers) {
  const ProfileScope scope("layer_norm");
  check_norm("layer_norm", x, weight, "weight");
  check_norm("layer_norm", x, bias, "bias");
  const Tensor rows = as_rows(x), own_weight = weight.to_dense(), own_bias = bias.to_dense();
  const Tensor mean = Tensor::empty({rows.size(0)}, x.dtype(), x.device());
  const Tensor rstd = Tensor::empty({rows.size(0)}, x.dtype(), x.device());
  const Written written(rows, readers, needs_grad({x, weight, bias}));
  kernels(x.device())
      .layer_norm(written.y.view(), mean.view(), rstd.view(), written.rounded.view(), rows.view(), own_weight.view(),
                  own_bias.view(), eps);
  written.register_rounded(rows);
  Tensor y = written.y.reshape_view(x.shape());
  record("layer_norm", y, {x, weight, bias},
         [kept_rows = Saved::rounded("layer_norm", rows), kept_weight = Saved("layer_norm", own_weight), mean, rstd](
             const Tensor& given_d_y, Gradients& d) {
           const Tensor& x_rows = kept_rows.get();
           const Tensor d_y = widened(given_d_y);
           const Tensor d_weight = Tensor::empty({x_rows.size(1)}, d_y.dtype(), d_y.device());
           const Tensor d_bias = Tensor::empty({x_rows.size(1)}, d_y.dtype(), d_y.device());
           const Kernels& on = kernels(d_y.device());
           const Workspace workspace(on.norm_backward_workspace(x_rows.view()), d_y.device());
           set_gradient_of_rows(d, x_rows.shape(), d_y, [&](const Tensor& d_rows, bool add) {
             on.layer_norm_backward(d_rows.view(), d_weight.view(), d_bias.view(), as_rows(d_y).view(), x_rows.view(),
                                    kept_weight.get().view(), mean.view(), rstd.view(), add, workspace.data());
           });
           d.set(1, d_weight);
           d.set(2, d_bias);
         });
  return y;
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, ReadBy readers) {
  const ProfileScope scope("rms_norm");
  check_norm("rms_norm", x, weight, "weight");
  const Tensor rows = as_rows(x), own_weight = weight.to_dense();
  const Tensor rstd = Tensor::empty({rows.size(0)}, x.dtype(), x.device());
  const Written written(rows, readers, needs_grad({x, weight}));
  kernels(x.device())
      .rms_norm(written.y.view(), rstd.view(), written.rounded.view(), rows.view(), own_weight.view(), eps);
  written.register_rounded(rows);
  Tensor y = written.y.reshape_view(x.shape());
  record("rms_norm", y, {x, weight},
         [kept_rows = Saved::rounded("rms_norm", rows), kept_weight = Saved("rms_norm", own_weight), rstd](
             const Tensor& given_d_y, Gradients& d) {
           const Tensor& x_rows = kept_rows.get();
           const Tensor d_y = widened(given_d_y);
           const Tensor d_weight = Tensor::empty({x_rows.size(1)}, d_y.dtype(), d_y.device());
           const Kernels& on = kernels(d_y.device());
           const Workspace workspace(on.norm_backward_workspace(x_rows.view()), d_y.device());
           set_gradient_of_rows(d, x_rows.shape(), d_y, [&](const Tensor& d_rows, bool add) {
             on.rms_norm_backward(d_rows.view(), d_weight.view(), as_rows(d_y).view(), x_rows.view(),
                                  kept_weight.get().view(), rstd.view(), add, workspace.data());
           });
           d.set(1, d_weight);
         });
  return y;
}

Tensor rms_norm(const Tensor& x, double eps) {
  const ProfileScope scope("rms_norm");
  check_floating("rms_norm", x);
  check_rank("rms_norm", x, 1, "[..., N]");
  check(x.size(-1) > 0, "rms_norm", "the last axis of shape ", x.shape(), " is empty");
  const bool by_token = lies_by_token(x);
  const auto in_order = [by_token](const Tensor& of) { return by_token ? of.transpose_view(1, 2) : of; };
  const Tensor given = in_order(x), rows = as_rows(given);
  const Tensor one = Tensor::full({rows.size(1)}, 1.0, x.dtype(), x.device());
  const Tensor rstd = Tensor::empty({rows.size(0)}, x.dtype(), x.device());
  const Tensor y_rows = Tensor::empty(rows.shape(), x.dtype(), x.device());
  kernels(x.device()).rms_norm(y_rows.view(), rstd.view(), {}, rows.view(), one.view(), eps);
  Tensor y = in_order(y_rows.reshape_view(given.shape()));
  record("rms_norm", y, {x},
         [kept = Saved::rounded("rms_norm", y_rows), shape = given.shape(), one, rstd, in_order](const Tensor& d_y,
                                                                                                 Gradients& d) {
           const Tensor& n = kept.get();
           const Tensor d_rows = Tensor::empty(n.shape(), d_y.dtype(), d_y.device());
           const Tensor nothing = Tensor::empty({n.size(1)}, d_y.dtype(), d_y.device());
           const Tensor ones = Tensor::full({n.size(0)}, 1.0, d_y.dtype(), d_y.device());
           const Kernels& on = kernels(d_y.device());
           const Workspace workspace(on.norm_backward_workspace(n.view()), d_y.device());
           on.rms_norm_backward(d_rows.view(), nothing.view(), as_rows(in_order(d_y)).view(), n.view(), one.view(),
                                ones.view(), false, workspace.data());
           const Tensor factor = rstd.reshape_view({n.size(0), 1}).broadcast_view("rms_norm", n.shape());
           on.binary(BinaryOp::multiply, d_rows.view(), d_rows.view(), factor.view());
           d.set(0, in_order(d_rows.reshape_view(shape)));
         });
  return y;
}

}  // namespace tally
