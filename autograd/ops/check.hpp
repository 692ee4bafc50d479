// Checks and views that the operations share. Every error names the operation and the value found.
#pragma once

#include <cstdint>
#include <string_view>

#include "autograd/autocast.hpp"
#include "core/device/backend.hpp"
#include "core/error.hpp"
#include "core/tensor.hpp"

namespace tally {

inline void check_defined(std::string_view name, const Tensor& x) {
  check(x.defined(), name, "an argument is an undefined tensor");
}

inline void check_floating(std::string_view name, const Tensor& x) {
  check_defined(name, x);
  check(is_floating(x.dtype()), name, "needs f32 or f64 elements, got {} {}", x.dtype(), x.shape());
}

inline void check_numbers(std::string_view name, const Tensor& x) {
  check_defined(name, x);
  check(is_floating(x.dtype()) || is_integer(x.dtype()), name,
        "computes with f32, f64, i32 and i64 elements, got {} {}", x.dtype(), x.shape());
}

inline void check_same_device(std::string_view name, const Tensor& a, const Tensor& b) {
  check_defined(name, a);
  check_defined(name, b);
  check(a.device() == b.device(), name, "devices differ: got {} on {} and {} on {}", a.shape(), a.device(), b.shape(),
        b.device());
}

// Same element type and device.
inline void check_same_type(std::string_view name, const Tensor& a, const Tensor& b) {
  check_same_device(name, a, b);
  check(a.dtype() == b.dtype(), name, "element types differ: got {} {} and {} {}", a.dtype(), a.shape(), b.dtype(),
        b.shape());
}

inline void check_same_floating(std::string_view name, const Tensor& a, const Tensor& b) {
  check_floating(name, a);
  check_same_type(name, a, b);
}

// The same, unless x is a matmul input and `other` is f32.
inline void check_matmul_input(std::string_view name, const Tensor& x, const Tensor& other) {
  check_same_device(name, x, other);
  if (!is_matmul_input(x) || other.dtype() != DType::f32) check_same_floating(name, x, other);
}

// Throws unless x has at least `least` axes; `expected` describes the shape: "[..., T, T]".
inline void check_rank(std::string_view name, const Tensor& x, int least, std::string_view expected) {
  check(x.rank() >= least, name, "needs shape {}, got {}", expected, x.shape());
}

// Throws unless x is [..., T, T].
inline void check_square(std::string_view name, const Tensor& x) {
  check_rank(name, x, 2, "[..., T, T]");
  check(x.size(-1) == x.size(-2), name, "needs shape [..., T, T], got {}", x.shape());
}

// The shape without its last `count` axes.
inline Shape leading_axes(const Shape& shape, int count = 1) {
  Shape result;
  for (int axis = 0; axis < shape.rank - count; ++axis) result.append(shape[axis]);
  return result;
}

// The shape with more axes after its last.
inline Shape append_axes(Shape shape, std::initializer_list<std::int64_t> sizes) {
  for (const std::int64_t size : sizes) shape.append(size);
  return shape;
}

// Checks that r [B, H, T, w] and e [1 or B, heads, N, w] have products r_i.e_n: `heads` must divide H.
inline void check_products_of_rows(std::string_view operation, const Tensor& query, const Tensor& key) {
  check_defined(operation, query);
  check_defined(operation, key);
  const bool fit = query.rank() == 4 && key.rank() == 4 && query.size(3) == key.size(3) && key.size(3) > 0 &&
                   key.size(2) > 0 && (key.size(0) == 1 || key.size(0) == query.size(0)) && key.size(1) > 0 &&
                   query.size(1) % key.size(1) == 0 && (query.dtype() == key.dtype() || query.dtype() == DType::bf16);
  check(fit, operation,
        "products of rows need a query [B, H, T, w] and a key [1 or B, heads, N, w] of heads that divide H, got {} {} "
        "and {} {}",
        query.dtype(), query.shape(), key.dtype(), key.shape());
}

// Whether x is dense, covers its storage and is the only owner of it.
inline bool holds_elements_alone(const Tensor& x) {
  return x.dense() && x.storage().use_count() == 1 && x.bytes() == x.storage()->bytes();
}

// x itself if it is the only owner of its storage, to be overwritten in place; otherwise a new tensor like it.
inline Tensor reuse_or_empty(const Tensor& x) {
  if (!holds_elements_alone(x)) return Tensor::empty(x.shape(), x.dtype(), x.device());
  x.storage()->bump_version();  // invalidates the cached bf16 copy
  return x.detach();
}

// Whether x, heads [B, H, T, w], is a view of a dense [B, T, H, w], whose rows need no copy.
inline bool lies_by_token(const Tensor& x) { return x.rank() == 4 && !x.dense() && x.detached_transpose(1, 2).dense(); }

// x [..., N] as a dense matrix [R, N]: a view if x is dense, else a copy.
inline Tensor as_rows(const Tensor& x) {
  return x.to_dense().detached_reshape({leading_axes(x.shape()).numel(), x.size(-1)});
}

// The same elements with an axis of size 1 put in before `axis`; x may have any strides.
inline Tensor insert_axis_view(const Tensor& x, int axis) {
  Shape shape;
  Strides strides;
  for (int from = 0; from <= x.rank(); ++from) {
    if (from == axis) shape.append(1);
    if (from == x.rank()) break;
    shape.append(x.shape()[from]);
    strides[shape.rank - 1] = x.strides()[from];
  }
  return x.detached_strided(shape, strides, x.offset());
}

}  // namespace tally
