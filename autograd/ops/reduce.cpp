// Sums, means and largest elements over axes.
#include <numeric>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/ops/product.hpp"
#include "autograd/profile.hpp"
#include "core/device/workspace.hpp"

namespace tally {
namespace {

// x's shape with size 1 on the reduced axes (all if none are given). Throws for an axis out of range or named twice.
Shape kept_shape(std::string_view name, const Shape& shape, const std::vector<int>& axes) {
  Shape kept = shape;
  std::array<bool, max_rank> reduced{};
  for (const int axis : axes) {
    const int own = normalise_axis(name, axis, shape);
    bool& seen = reduced[static_cast<std::size_t>(own)];
    check(!seen, name, "axis {} of shape {} is named twice", own, shape);
    seen = true;
  }
  for (int axis = 0; axis < shape.rank; ++axis) {
    if (axes.empty() || reduced[static_cast<std::size_t>(axis)]) kept[axis] = 1;
  }
  return kept;
}

void reduce(ReduceOp op, const Tensor& y, const Tensor& x) {
  const Kernels& on = kernels(x.device());
  const Workspace workspace(on.reduce_workspace(y.view(), x.view()), x.device());
  on.reduce(op, y.view(), x.view(), workspace.data());
}

// The shape without the reduced axes.
Shape dropped_shape(const Shape& shape, const std::vector<int>& axes) {
  Shape dropped;
  if (axes.empty()) return dropped;
  for (int axis = 0; axis < shape.rank; ++axis) {
    bool reduced = false;
    for (const int named : axes) reduced = reduced || named == axis || named + shape.rank == axis;
    if (!reduced) dropped.append(shape[axis]);
  }
  return dropped;
}

}  // namespace

Tensor sum_of_rows(const Tensor& x) {
  const Tensor total = Tensor::empty({1, x.size(1)}, compute_type(x.dtype()), x.device());
  reduce(ReduceOp::sum, total, x);
  return total.detached_reshape({x.size(1)});
}

// y = sum of x over axes;  d_x = d_y, the same for all summed elements: a view with stride 0.
Tensor sum(const Tensor& x, const std::vector<int>& axes, bool keep) {
  const ProfileScope scope("sum");
  check_floating("sum", x);
  const Shape kept = kept_shape("sum", x.shape(), axes);
  const Tensor total = Tensor::empty(kept, x.dtype(), x.device());
  reduce(ReduceOp::sum, total, x);
  Tensor y = keep ? total : total.detached_reshape(dropped_shape(x.shape(), axes));
  record("sum", y, {x}, [kept](const Tensor& d_y, Gradients& d) {
    d.set(0, d_y.to_dense().detached_reshape(kept).detached_broadcast("sum", d.shape(0)));
  });
  return y;
}

Tensor mean(const Tensor& x, const std::vector<int>& axes, bool keep) {
  const ProfileScope scope("mean");
  const Tensor total = sum(x, axes, keep);
  const std::int64_t reduced = kept_shape("mean", x.shape(), axes).numel();
  check(x.numel() > 0, "mean", "shape {} has no elements", x.shape());
  return multiply(total, static_cast<double>(reduced) / static_cast<double>(x.numel()));
}

// The adjoint of broadcasting;  d_x = d_y broadcast again.
Tensor sum_to(const Tensor& x, const Shape& shape) {
  check_floating("sum_to", x);
  if (x.shape() == shape) return x;
  const ProfileScope scope("sum_to");
  check(broadcast_shapes("sum_to", x.shape(), shape) == x.shape(), "sum_to", "shape {} does not broadcast to {}", shape,
        x.shape());
  Shape padded;
  while (padded.rank < x.rank() - shape.rank) padded.append(1);
  for (int axis = 0; axis < shape.rank; ++axis) padded.append(shape[axis]);
  const Tensor total = Tensor::empty(padded, x.dtype(), x.device());
  reduce(ReduceOp::sum, total, x);
  Tensor y = total.detached_reshape(shape);
  record("sum_to", y, {x},
         [](const Tensor& d_y, Gradients& d) { d.set(0, d_y.detached_broadcast("sum_to", d.shape(0))); });
  return y;
}

// d_x = d_y at the first index of the largest element, 0 elsewhere. Saved: that index for each result.
Tensor max(const Tensor& x, int axis, bool keep) {
  const ProfileScope scope("max");
  check_floating("max", x);
  axis = normalise_axis("max", axis, x.shape());
  const std::int64_t length = x.size(axis);
  check(length > 0, "max", "axis {} of shape {} is empty", axis, x.shape());
  const Shape kept = kept_shape("max", x.shape(), {axis});
  const Tensor largest = Tensor::empty(kept, x.dtype(), x.device());
  reduce(ReduceOp::maximum, largest, x);
  Tensor y = keep ? largest : largest.detached_reshape(dropped_shape(x.shape(), {axis}));
  if (!needs_grad({x})) return y;

  const Tensor axis_last = x.detached_transpose(axis, -1).detach();
  const Tensor index = Tensor::empty(leading_axes(axis_last.shape()), DType::i64, x.device());
  kernels(x.device()).argmax(index.view(), axis_last.view());
  record("max", y, {x}, [axis, kept, length, index](const Tensor& d_y, Gradients& d) {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(length));
    std::iota(indices.begin(), indices.end(), 0);
    const Tensor chosen = equal(insert_axis_view(index, index.rank()), Tensor::from(indices, {length}, index.device()));
    const Tensor d_largest = d_y.to_dense().detached_reshape(kept);
    const Tensor zero = Tensor::scalar(0.0, d_y.dtype(), d_y.device());
    d.set(0, where(chosen.detached_transpose(axis, -1), d_largest, zero));
  });
  return y;
}

Tensor argmax(const Tensor& x) {
  const ProfileScope scope("argmax");
  check_floating("argmax", x);
  check_rank("argmax", x, 1, "[..., N]");
  check(x.size(-1) > 0, "argmax", "the last axis of shape {} is empty", x.shape());
  record_no_derivative("argmax", {x});
  const Tensor index = Tensor::empty(leading_axes(x.shape()), DType::i64, x.device());
  kernels(x.device()).argmax(index.view(), x.view());
  return index;
}

}  // namespace tally
