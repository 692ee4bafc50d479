// Arrays for kernel tests: memory of their own with a view, reading by index, and walking all indices of a shape.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/math/random.hpp"
#include "core/view.hpp"

namespace tally {

using Index = std::array<std::int64_t, max_rank>;

// Calls f(index) for all indices of a shape, row-major.
template <class F>
void for_each_index(const Shape& shape, F&& f) {
  const std::int64_t count = shape.numel();
  for (std::int64_t n = 0; n < count; ++n) {
    Index index{};
    std::int64_t rest = n;
    for (int axis = shape.rank - 1; axis >= 0; --axis) {
      index[static_cast<std::size_t>(axis)] = rest % shape[axis];
      rest /= shape[axis];
    }
    f(index);
  }
}

// The element at the first view.shape.rank numbers of index; axes of size 1 are repeated.
template <class T>
T& element(const View& view, const Index& index) {
  std::int64_t offset = 0;
  for (int axis = 0; axis < view.shape.rank; ++axis) {
    if (view.shape[axis] != 1) offset += index[static_cast<std::size_t>(axis)] * view.strides[axis];
  }
  return view.as<T>()[offset];
}

// A dense array of random numbers in [-4, 4), the same for the same seed.
template <class T>
struct Array {
  std::vector<std::uint8_t> bytes;
  View view;

  explicit Array(const Shape& shape, std::uint64_t seed = 1)
      : bytes(static_cast<std::size_t>(shape.numel()) * sizeof(T) + 1),
        view{bytes.data(), dtype_of<T>, shape, dense_strides(shape)} {
    Rng rng(RandomStream{.seed = seed});
    for (std::int64_t i = 0; i < shape.numel(); ++i) at(i) = static_cast<T>(8.0 * rng.uniform() - 4.0);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  T& at(std::int64_t i) { return view.as<T>()[i]; }
  std::vector<T> values() const { return std::vector<T>(view.as<T>(), view.as<T>() + view.numel()); }
};

// The same elements with axis i of the result being axis order[i] of the view.
inline View permuted(const View& view, const std::vector<int>& order) {
  View result = view;
  for (int axis = 0; axis < view.shape.rank; ++axis) {
    result.shape[axis] = view.shape[order[static_cast<std::size_t>(axis)]];
    result.strides[axis] = view.strides[order[static_cast<std::size_t>(axis)]];
  }
  return result;
}

// Every second element along an axis.
inline View every_second(View view, int axis) {
  view.shape[axis] = (view.shape[axis] + 1) / 2;
  view.strides[axis] *= 2;
  return view;
}

// Repeated to a larger shape by strides of 0.
inline View repeated(View view, const Shape& shape) {
  for (int axis = 0; axis < shape.rank; ++axis) {
    if (view.shape[axis] == 1) view.strides[axis] = 0;
  }
  view.shape = shape;
  return view;
}

}  // namespace tally
