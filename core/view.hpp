// The kernel's view of a tensor: address, type, shape and strides, without ownership or autograd data.
#pragma once

#include <span>

#include "core/dtype.hpp"
#include "core/shape.hpp"

namespace tally {

struct View {
  void* data = nullptr;  // first element, offset applied; null for an absent optional argument
  DType dtype = DType::f32;
  Shape shape;
  Strides strides;  // in elements; 0 on broadcast axes of inputs

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  bool dense() const { return is_dense(shape, strides); }
  std::int64_t numel() const { return shape.numel(); }
  explicit operator bool() const { return data != nullptr; }
};

// Several tensors, for kernels that take them all at once.
using Views = std::span<const View>;

}  // namespace tally
