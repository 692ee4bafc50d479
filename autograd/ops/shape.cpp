// Other shapes of the same elements. All are views that share the elements and cost nothing, except concat; reshape,
// contiguous and cast may have to copy. The derivative of each moves d_y back to the places of the elements.
#include "autograd/autocast.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/profile.hpp"

namespace tally {

// d_x = d_y in x's shape.
Tensor reshape(const Tensor& x, const Shape& shape) {
  const ProfileScope scope("reshape");
  check_defined("reshape", x);
  check(shape.numel() == x.numel(), "reshape", "shape {} has {} elements and cannot become {}", x.shape(), x.numel(),
        shape);
  Tensor y = x.to_dense().detached_reshape(shape);
  record("reshape", y, {x},
         [](const Tensor& d_y, Gradients& d) { d.set(0, d_y.to_dense().detached_reshape(d.shape(0))); });
  return y;
}

// d_x = d_y with the axes exchanged again.
Tensor transpose(const Tensor& x, int a, int b) {
  const ProfileScope scope("transpose");
  check_defined("transpose", x);
  Tensor y = x.detached_transpose(a, b);
  record("transpose", y, {x}, [a, b](const Tensor& d_y, Gradients& d) { d.set(0, d_y.detached_transpose(a, b)); });
  return y;
}

namespace {

// A view of some of x's elements; d_x = d_y there, 0 elsewhere.
template <class ViewOf>
Tensor part_of(std::string_view name, const Tensor& x, const ViewOf& view_of) {
  const ProfileScope scope(name);
  check_defined(name, x);
  Tensor y = view_of(x);
  record(name, y, {x}, [view_of](const Tensor& d_y, Gradients& d) {
    const Tensor d_x = Tensor::zeros(d.shape(0), d_y.dtype(), d_y.device());
    view_of(d_x).copy_from(d_y);
    d.set(0, d_x);
  });
  return y;
}

}  // namespace

Tensor slice(const Tensor& x, int axis, std::int64_t begin, std::int64_t end) {
  return part_of("slice", x, [=](const Tensor& all) { return all.detached_slice(axis, begin, end); });
}

Tensor select(const Tensor& x, int axis, std::int64_t index) {
  return part_of("select", x, [=](const Tensor& all) { return all.detached_select(axis, index); });
}

// d_x = d_y summed over the axes that were repeated.
Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  const ProfileScope scope("broadcast_to");
  check_defined("broadcast_to", x);
  Tensor y = x.detached_broadcast("broadcast_to", shape);
  record("broadcast_to", y, {x}, [](const Tensor& d_y, Gradients& d) { d.set(0, sum_to(to_f32(d_y), d.shape(0))); });
  return y;
}

// d_x = d_y without the axis.
Tensor unsqueeze(const Tensor& x, int axis) {
  const ProfileScope scope("unsqueeze");
  check_defined("unsqueeze", x);
  const int own = axis < 0 ? axis + x.rank() + 1 : axis;
  check(own >= 0 && own <= x.rank(), "unsqueeze", "axis {} is out of range for shape {}", axis, x.shape());
  Tensor y = insert_axis_view(x, own);
  record("unsqueeze", y, {x}, [own](const Tensor& d_y, Gradients& d) { d.set(0, d_y.detached_select(own, 0)); });
  return y;
}

// d_part = the part's slice of d_y.
Tensor concat(const std::vector<Tensor>& parts, int axis) {
  const ProfileScope scope("concat");
  check(!parts.empty(), "concat", "needs at least one tensor");
  check_defined("concat", parts.front());
  axis = normalise_axis("concat", axis, parts.front().shape());
  Shape shape = parts.front().shape();
  shape[axis] = 0;
  for (const Tensor& part : parts) {
    check_same_type("concat", parts.front(), part);
    Shape rest = part.shape();
    if (axis < rest.rank) rest[axis] = shape[axis];
    check(rest == shape, "concat", "shapes may differ on axis {} only: got {} and {}", axis, parts.front().shape(),
          part.shape());
    shape[axis] += part.shape()[axis];
  }
  Tensor y = Tensor::empty(shape, parts.front().dtype(), parts.front().device());
  std::int64_t begin = 0;
  for (const Tensor& part : parts) {
    const std::int64_t end = begin + part.shape()[axis];
    y.detached_slice(axis, begin, end).copy_from(part);
    begin = end;
  }
  record("concat", y, parts, [axis, count = parts.size()](const Tensor& d_y, Gradients& d) {
    std::int64_t start = 0;
    for (std::size_t part = 0; part < count; ++part) {
      const std::int64_t stop = start + d.shape(part)[axis];
      d.set(part, d_y.detached_slice(axis, start, stop));
      start = stop;
    }
  });
  return y;
}

// d_x = d_y.
Tensor contiguous(const Tensor& x) {
  check_defined("contiguous", x);
  if (x.dense()) return x;
  const ProfileScope scope("contiguous");
  Tensor y = x.clone();
  record("contiguous", y, {x}, [](const Tensor& d_y, Gradients& d) { d.set(0, d_y); });
  return y;
}

// d_x = d_y in x's type. Rounding to an integer or to bool has no derivative.
Tensor cast(const Tensor& x, DType dtype) {
  check_defined("cast", x);
  if (x.dtype() == dtype) return x;
  const ProfileScope scope("cast");
  if (!is_floating(dtype)) record_no_derivative("cast", {x});
  Tensor y = x.to(dtype);
  record("cast", y, {x}, [from = x.dtype()](const Tensor& d_y, Gradients& d) { d.set(0, d_y.to(from)); });
  return y;
}

}  // namespace tally
