// Matmuls.
//   c = alpha a b     [..., M, K] [..., K, N] -> [..., M, N]     d_a = alpha d_c b^T,   d_b = alpha a^T d_c.
// Leading axes broadcast; the gradient of a broadcast operand is summed over them. The kernel reads transposed views in
// place. Other matrices that are not row-major are copied first.
#include <algorithm>
#include <limits>
#include <utility>

#include "autograd/autocast.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/ops/product.hpp"
#include "autograd/profile.hpp"
#include "core/device/backend.hpp"
#include "core/device/workspace.hpp"
#include "core/matrix_layout.hpp"

namespace tally {
namespace {

// x with matrices that kernels can read. A broadcast matrix is copied once.
Tensor readable(const Tensor& x) {
  if (layout_of(x.view())) return x;
  Shape own = x.shape();
  for (int axis = 0; axis < own.rank - 2; ++axis) own[axis] = x.strides()[axis] == 0 ? 1 : own[axis];
  return x.detached_strided(own, x.strides(), x.offset()).clone().detached_broadcast("matmul", x.shape());
}

}  // namespace

void multiply_into(const Tensor& c, const Tensor& given_a, const Tensor& given_b, Epilogue end) {
  const Tensor a = readable(matmul_operand(given_a, given_b, c)), b = readable(matmul_operand(given_b, given_a, c));
  for (const Tensor& x : {a, b, c}) {
    const std::int64_t matrices = leading_axes(x.shape(), 2).numel();
    const std::int64_t largest = std::max({matrices, x.size(-1), x.size(-2), layout_of(x.view())->ld});
    // On the meta device, which only counts, the error to report is that there is too little memory.
    check(largest <= std::numeric_limits<int>::max() || c.device().type == DeviceType::meta, "matmul",
          "2^31 or more matrices, rows or elements of a row");
  }
  const Kernels& on = kernels(c.device());
  if (end.row_sums && on.matmul_sums_rows(c.view(), a.view(), b.view()) == 0) {
    View total = std::exchange(end.row_sums, {});
    total.shape = {total.shape[0], 1};
    total.strides = {{1, 1}};
    const Workspace partial(on.reduce_workspace(total, given_a.view()), c.device());
    on.reduce(ReduceOp::sum, total, given_a.view(), partial.data());
  }
  const Workspace workspace(on.matmul_workspace(c.view(), a.view()), c.device());
  on.matmul(c.view(), a.view(), b.view(), end, workspace.data());
}

namespace {

// alpha a b without recording. If many a share one matrix b, the leading axes of a dense a join its rows: one large
// matmul instead of many small ones. Heads are views of [B, T, H, d], where the axes B and T can be merged. A b that is
// the same for all sequences then gives a result with the same layout.
Tensor product(const Tensor& a, const Tensor& b, double alpha) {
  if (a.rank() == 4 && b.rank() <= 3 && !a.dense()) {
    const Tensor by_row = a.detached_transpose(1, 2);
    if (by_row.dense()) {
      if (b.rank() == 2) return product(by_row, b, alpha).detached_transpose(1, 2);
      const Shape& s = by_row.shape();  // [B, T, H, d]
      const Tensor by_head = by_row.detached_reshape({s[0] * s[1], s[2], s[3]}).detached_transpose(0, 1);
      return product(by_head, b, alpha).detached_reshape({s[2], s[0], s[1], b.size(-1)}).detached_transpose(0, 1);
    }
  }
  if (b.rank() == 2 && a.rank() > 2 && a.dense()) {
    return product(as_rows(a), b, alpha).detached_reshape(append_axes(leading_axes(a.shape()), {b.size(1)}));
  }
  const Shape leading = broadcast_shapes("matmul", leading_axes(a.shape(), 2), leading_axes(b.shape(), 2));
  const DType dtype = compute_type(a.dtype());
  const Tensor c = Tensor::empty(append_axes(leading, {a.size(-2), b.size(-1)}), dtype, a.device());
  const Tensor a_all = a.detached_broadcast("matmul", append_axes(leading, {a.size(-2), a.size(-1)}));
  const Tensor b_all = b.detached_broadcast("matmul", append_axes(leading, {b.size(-2), b.size(-1)}));
  multiply_into(c, a_all, b_all, {.alpha = alpha});
  return c;
}

// a^T c over all rows of a [..., R, K] and c [..., R, N], summed over the leading axes. The order of the rows does not
// matter, so heads that are views of [B, T, H, .] are read in place.
Tensor product_of_rows(const Tensor& a, const Tensor& c, double alpha) {
  const bool turned = lies_by_token(a) && lies_by_token(c);
  const auto rows = [&](const Tensor& x) { return as_rows(turned ? x.detached_transpose(1, 2) : x); };
  return product(transposed(rows(a)), rows(c), alpha);
}

// sum += alpha a b, for heads [B, H, T, .] and a matrix b that all share. False if the sequences of `sum` are not
// evenly spaced, or the heads of a are not views of a dense [B, T, H, .].
bool add_product(const Tensor& sum, const Tensor& a, const Tensor& b, double alpha) {
  if (sum.rank() != 4 || b.rank() != 2 || a.shape().rank != 4 || !a.detached_transpose(1, 2).dense()) return false;
  const std::int64_t heads = sum.size(1), tokens = sum.size(2);
  if (sum.strides()[0] != tokens * sum.strides()[2] || sum.strides()[3] != 1) return false;
  const auto by_head = [&](const Tensor& x, std::int64_t row_step, std::int64_t head_step) {
    Strides strides;
    strides.step = {head_step, row_step, 1};
    return x.detached_strided({heads, x.size(0) * tokens, x.size(3)}, strides, x.offset());
  };
  const Tensor c = by_head(sum, sum.strides()[2], sum.strides()[1]);
  const Tensor all_b = b.detached_broadcast("matmul", {heads, b.size(0), b.size(1)});
  multiply_into(c, by_head(a, heads * a.size(3), a.size(3)), all_b, {.alpha = alpha, .residual = c.view()});
  return true;
}

}  // namespace

Tensor matmul(const Tensor& given_a, const Tensor& given_b, double alpha) {
  Tensor a = given_a, b = given_b;
  const ProfileScope scope("matmul");
  check_matmul_input("matmul", a, b);
  check(a.rank() >= 2 && b.rank() >= 2, "matmul", "needs matrices [..., M, K] and [..., K, N]: got {} and {}",
        a.shape(), b.shape());
  check(a.size(-1) == b.size(-2), "matmul", "inner sizes differ: got {} and {}{}", a.shape(), b.shape(),
        a.size(-1) == b.size(-1) || a.size(-2) == b.size(-2) ? "; transpose one of them?" : "");
  const Saved saved_a = save_operand("matmul", a, b), saved_b = save_operand("matmul", b, a);
  Tensor c = product(a, b, alpha);
  record("matmul", c, {a, b}, [alpha, saved_a, saved_b](const Tensor& d_c, Gradients& d) {
    // Both matmuls read d_c as bf16 if they read a bf16 operand.
    const bool reads_bf16 = is_matmul_input(saved_a.get()) || is_matmul_input(saved_b.get());
    const Tensor d_cached = reads_bf16 ? cache_operand(d_c) : Tensor();
    if (const Tensor sum = d.sum_in_target(0);
        sum.defined() && add_product(sum, d_c, transposed(saved_b.get()), alpha)) {
      d.added_to_it(0);
    } else if (d.wants(0)) {
      d.set(0, sum_to(product(d_c, transposed(saved_b.get()), alpha), d.shape(0)));
    }
    if (!d.wants(1)) return;
    if (d.shape(1).rank == 2 && d.shape(0).rank > 2) {
      // One matmul with the rows of all a, which also sums over the leading axes. On a GPU d_b has the layout of b, so
      // that views need no copy.
      const Tensor &a_rows = saved_a.get(), &b_now = saved_b.get();
      const bool turned = b_now.defined() && !is_cpu(d_c.device()) && !b_now.dense() && transposed(b_now).dense();
      d.set(1, turned ? transposed(product_of_rows(d_c, a_rows, alpha)) : product_of_rows(a_rows, d_c, alpha));
    } else {
      d.set(1, sum_to(product(transposed(saved_a.get()), d_c, alpha), d.shape(1)));
    }
  });
  return c;
}

}  // namespace tally
