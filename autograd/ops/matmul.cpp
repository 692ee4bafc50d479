// Matrix products.
//   c = alpha a b     [..., M, K] [..., K, N] -> [..., M, N]     d_a = alpha d_c b^T,   d_b = alpha a^T d_c
//   y = x w^T + bias  [..., in] [out, in] -> [..., out]          d_x = d_y w,  d_w = d_y^T x,  d_bias = sum of d_y's
//   rows
// Leading axes broadcast; the gradient of a broadcast operand is summed over them. Transposed matrices are views that
// the kernel reads in place; what is neither row-major nor transposed is copied first.
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "autograd/activation.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/ops/product.hpp"
#include "autograd/profile.hpp"
#include "core/backend.hpp"
#include "core/matrix_layout.hpp"
#include "core/rounded.hpp"
#include "core/workspace.hpp"

namespace tally {
namespace {

// x with matrices that kernels can read. One that is broadcast is copied once.
Tensor readable(const Tensor& x) {
  if (layout_of(x.view())) return x;
  Shape own = x.shape();
  for (int axis = 0; axis < own.rank - 2; ++axis) own[axis] = x.strides()[axis] == 0 ? 1 : own[axis];
  return x.as_strided(own, x.strides(), x.offset()).clone().broadcast_view("matmul", x.shape());
}

// x as the device's kernel reads it: CUDA's products have both operands of one type.
Tensor as_read_beside(const Tensor& x, const Tensor& other) {
  const bool kept = x.dtype() == DType::bf16;
  if (!kept && other.dtype() != DType::bf16) return x;
  if (product_precision() != ProductPrecision::bf16) return widened(x);
  return kept || is_cpu(x.device()) ? x : rounded_to_bf16(x);
}

}  // namespace

void multiply_into(const Tensor& c, const Tensor& given_a, const Tensor& given_b, const ProductOptions& options) {
  const Tensor a = readable(as_read_beside(given_a, given_b)), b = readable(as_read_beside(given_b, given_a));
  for (const Tensor& x : {a, b, c}) {
    const std::int64_t matrices = leading_axes(x.shape(), 2).numel();
    const std::int64_t largest = std::max({matrices, x.size(-1), x.size(-2), layout_of(x.view())->ld});
    // Where memory is only counted, that there is too little of it is what is to be told.
    check(largest <= std::numeric_limits<int>::max() || c.device().type == DeviceType::meta, "matmul",
          "2^31 or more matrices, rows or elements of a row");
  }
  const Kernels& on = kernels(c.device());
  const Workspace workspace(on.matmul_workspace(c.view(), a.view()), c.device());
  on.matmul(c.view(), a.view(), b.view(), options.bias, options.alpha, options.add, workspace.data());
}

namespace {

// alpha a b without recording. One matrix b for many a: the leading axes of a dense a join its rows, which makes one
// large product of many small ones. Heads are views of [B, T, H, d], where sequence and row lie next to each other:
// what multiplies all sequences alike gives a result that lies in the same way.
Tensor product(const Tensor& a, const Tensor& b, double alpha) {
  if (a.rank() == 4 && b.rank() <= 3 && !a.dense()) {
    const Tensor by_row = a.transpose_view(1, 2);
    if (by_row.dense()) {
      if (b.rank() == 2) return product(by_row, b, alpha).transpose_view(1, 2);
      const Shape& s = by_row.shape();  // [B, T, H, d]
      const Tensor by_head = by_row.reshape_view({s[0] * s[1], s[2], s[3]}).transpose_view(0, 1);
      return product(by_head, b, alpha).reshape_view({s[2], s[0], s[1], b.size(-1)}).transpose_view(0, 1);
    }
  }
  if (b.rank() == 2 && a.rank() > 2 && a.dense()) {
    return product(as_rows(a), b, alpha).reshape_view(append_axes(leading_axes(a.shape()), {b.size(1)}));
  }
  const Shape leading = broadcast_shapes("matmul", leading_axes(a.shape(), 2), leading_axes(b.shape(), 2));
  const DType dtype = a.dtype() == DType::bf16 ? DType::f32 : a.dtype();
  const Tensor c = Tensor::empty(append_axes(leading, {a.size(-2), b.size(-1)}), dtype, a.device());
  const Tensor a_all = a.broadcast_view("matmul", append_axes(leading, {a.size(-2), a.size(-1)}));
  const Tensor b_all = b.broadcast_view("matmul", append_axes(leading, {b.size(-2), b.size(-1)}));
  multiply_into(c, a_all, b_all, {.alpha = alpha});
  return c;
}

// a^T c of all rows of a [..., R, K] and c [..., R, N], added up over the leading axes. In which order is one: heads
// that are views of [B, T, H, .] are read as they lie.
Tensor product_of_rows(const Tensor& a, const Tensor& c, double alpha) {
  const bool turned = lies_by_token(a) && lies_by_token(c);
  const auto rows = [&](const Tensor& x) { return as_rows(turned ? x.transpose_view(1, 2) : x); };
  return product(transposed(rows(a)), rows(c), alpha);
}

// What is kept of x where something is, which takes less time to read.
const Tensor& kept_or(const Saved& kept, const Tensor& x) { return kept.get().defined() ? kept.get() : x; }

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, double alpha) {
  const ProfileScope scope("matmul");
  check_same_floating("matmul", a, b);
  check(a.rank() >= 2 && b.rank() >= 2, "matmul", "needs matrices [..., M, K] and [..., K, N]: got ", a.shape(),
        " and ", b.shape());
  check(a.size(-1) == b.size(-2), "matmul", "inner sizes differ: got ", a.shape(), " and ", b.shape(),
        a.size(-1) == b.size(-1) || a.size(-2) == b.size(-2) ? "; transpose one of them?" : "");
  const Saved kept_a = Saved::rounded("matmul", requires_grad(b) ? a : Tensor());
  const Saved kept_b = Saved::rounded("matmul", requires_grad(a) ? b : Tensor());
  Tensor c = product(kept_or(kept_a, a), kept_or(kept_b, b), alpha);
  record("matmul", c, {a, b}, [alpha, kept_a, kept_b](const Tensor& d_c, Gradients& d) {
    if (d.wants(0)) d.set(0, sum_to(product(d_c, transposed(kept_b.get()), alpha), d.shape(0)));
    if (!d.wants(1)) return;
    if (d.shape(1).rank == 2 && d.shape(0).rank > 2) {
      // All rows of all a in one product, which adds up over the leading axes by itself.
      d.set(1, product_of_rows(kept_a.get(), d_c, alpha));
    } else {
      d.set(1, sum_to(product(transposed(kept_a.get()), d_c, alpha), d.shape(1)));
    }
  });
  return c;
}

namespace {

// Of a layer: x [..., in], of f32 or f64 or, where products round to it, kept in bf16; weight [out, in], bias [out] or
// undefined.
void check_layer(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_floating("linear", weight);
  const bool kept = x.defined() && x.dtype() == DType::bf16 && is_rounded_by_products(weight);
  if (kept) {
    check_same_device("linear", x, weight);
  } else {
    check_same_floating("linear", x, weight);
  }
  check_rank("linear", x, 1, "[..., in]");
  check(weight.rank() == 2, "linear", "weight must have shape [out, in], got ", weight.shape());
  check(x.size(-1) == weight.size(1), "linear", "x ", x.shape(), " does not fit the weight ", weight.shape(),
        " [out, in]: ", x.size(-1), " and ", weight.size(1), " inputs");
  if (!bias.defined()) return;
  check_same_floating("linear", weight, bias);
  check(bias.shape() == Shape{weight.size(0)}, "linear", "bias must have shape [", weight.size(0), "] for the weight ",
        weight.shape(), ", got ", bias.shape());
}

// The rows of x as the layer's product reads them and its backward keeps them; where that is less than x, x becomes it,
// so that nothing here holds more.
struct KeptRows {
  KeptRows(Tensor& x, const Tensor& weight) : rows(as_rows(x)) {
    rows.set_autograd(x.autograd());  // by which a leaf is told
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

// a b (+ bias) of matrices, rounded to bf16.
Tensor rounded_product(const Tensor& a, const Tensor& b, View bias = {}) {
  // The CPU's products write bf16 themselves where they read it.
  const bool writes = is_cpu(a.device()) && product_precision() == ProductPrecision::bf16;
  const Tensor c = Tensor::empty({a.size(0), b.size(1)}, writes ? DType::bf16 : DType::f32, a.device());
  multiply_into(c, a, b, {.bias = bias});
  return c.dtype() == DType::bf16 ? c : c.to(DType::bf16);
}

// From the gradient of a layer's product, d_rows [R, out]. That of an x of bf16 is bf16; to another it is added where
// other layers have read x, as queries, keys and values do.
void set_gradients_of_layer(Gradients& d, const Tensor& d_rows, const Saved& rows, const Saved& weight,
                            bool x_is_rounded) {
  if (const Tensor sum = d.wants(0) && !x_is_rounded ? d.so_far(0) : Tensor(); sum.defined()) {
    multiply_into(sum.reshape_view({d_rows.size(0), sum.size(-1)}), d_rows, weight.get(), {.add = true});
    d.added_to_it(0);
  } else if (d.wants(0)) {
    const Tensor d_x = x_is_rounded ? rounded_product(d_rows, weight.get()) : product(d_rows, weight.get(), 1.0);
    d.set(0, d_x.reshape_view(d.shape(0)));
  }
  if (d.wants(1)) d.set(1, product(transposed(d_rows), rows.get(), 1.0));
  if (d.wants(2)) d.set(2, sum_of_rows(d_rows));
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) { return linear(Tensor(x), weight, bias); }

Tensor linear(Tensor&& x, const Tensor& weight, const Tensor& bias) {
  const ProfileScope scope("linear");
  check_layer(x, weight, bias);
  const std::int64_t outputs = weight.size(0);
  const Shape leading = leading_axes(x.shape());
  const bool is_rounded = x.dtype() == DType::bf16;
  const KeptRows of_x(x, weight);
  const Tensor y_rows = Tensor::empty({of_x.rows.size(0), outputs}, weight.dtype(), x.device());
  multiply_into(y_rows, of_x.rows, transposed(weight), {.bias = bias.view()});
  Tensor y = y_rows.reshape_view(append_axes(leading, {outputs}));
  record("linear", y, {x, weight, bias},
         [is_rounded, kept_rows = of_x.kept, kept_weight = Saved("linear", requires_grad(x) ? weight : Tensor())](
             const Tensor& d_y, Gradients& d) {
           set_gradients_of_layer(d, as_rows(d_y), kept_rows, kept_weight, is_rounded);
         });
  return y;
}

Tensor activated_linear(UnaryOp op, Tensor x, const Tensor& weight, const Tensor& bias) {
  if (!is_rounded_by_products(weight)) return unary(op, linear(std::move(x), weight, bias));
  constexpr std::string_view name = "activated_linear";
  const ProfileScope scope(name);
  check_layer(x, weight, bias);
  const Shape leading = leading_axes(x.shape());
  const bool is_rounded = x.dtype() == DType::bf16, from_output = unary_needs_output(op);
  const KeptRows of_x(x, weight);
  const Tensor own_bias = bias.defined() ? bias.to_dense() : bias;
  const Tensor hidden = rounded_product(of_x.rows, transposed(weight), own_bias.view());
  const Tensor y_rows = Tensor::empty(hidden.shape(), DType::bf16, hidden.device());
  kernels(hidden.device()).unary(op, 0, y_rows.view(), hidden.view());
  Tensor y = y_rows.reshape_view(append_axes(leading, {weight.size(0)}));
  record(name, y, {x, weight, bias},
         [op, from_output, is_rounded, kept = Saved(name, from_output ? y_rows : hidden), kept_rows = of_x.kept,
          kept_weight = Saved(name, requires_grad(x) ? weight : Tensor())](const Tensor& d_y, Gradients& d) {
           const View value = kept.get().view();
           const Tensor d_hidden = as_rows(own_or_new(d_y));
           kernels(d_y.device())
               .unary_backward(op, 0, d_hidden.view(), as_rows(d_y).view(), from_output ? View{} : value,
                               from_output ? value : View{});
           set_gradients_of_layer(d, d_hidden, kept_rows, kept_weight, is_rounded);
         });
  return y;
}

}  // namespace tally
