#include "core/shape.hpp"

#include <algorithm>

namespace tally {

std::string to_text(const Shape& shape) {
  std::string text = "[";
  for (int axis = 0; axis < shape.rank; ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(shape[axis]);
  }
  return text + "]";
}

Strides dense_strides(const Shape& shape) {
  Strides strides;
  std::int64_t step = 1;
  for (int axis = shape.rank - 1; axis >= 0; --axis) {
    strides[axis] = step;
    step *= std::max<std::int64_t>(shape[axis], 1);
  }
  return strides;
}

bool is_dense(const Shape& shape, const Strides& strides) {
  std::int64_t step = 1;
  for (int axis = shape.rank - 1; axis >= 0; --axis) {
    if (shape[axis] == 0) return true;
    if (shape[axis] != 1 && strides[axis] != step) return false;
    step *= shape[axis];
  }
  return true;
}

Shape broadcast_shapes(std::string_view where, const Shape& a, const Shape& b) {
  Shape result;
  result.rank = std::max(a.rank, b.rank);
  for (int back = 0; back < result.rank; ++back) {
    const std::int64_t size_a = back < a.rank ? a.back(back) : 1;
    const std::int64_t size_b = back < b.rank ? b.back(back) : 1;
    check(size_a == size_b || size_a == 1 || size_b == 1, where,
          "shapes do not broadcast: got {} and {}; sizes must be equal or 1, counted from the last axis", a, b);
    result[result.rank - 1 - back] = size_a == 1 ? size_b : size_a;
  }
  return result;
}

int normalise_axis(std::string_view where, int axis, const Shape& shape) {
  const int result = axis < 0 ? axis + shape.rank : axis;
  check(result >= 0 && result < shape.rank, where, "axis {} is out of range for shape {}", axis, shape);
  return result;
}

}  // namespace tally
