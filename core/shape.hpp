// Shapes and strides: plain structs by value, rank 0 to 8. Strides count elements, not bytes.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/error.hpp"

namespace tally {

inline constexpr int max_rank = 8;

struct Strides {
  std::array<std::int64_t, max_rank> step{};
  std::int64_t& operator[](int axis) { return step[static_cast<std::size_t>(axis)]; }
  std::int64_t operator[](int axis) const { return step[static_cast<std::size_t>(axis)]; }
};

struct Shape {
  int rank = 0;
  std::array<std::int64_t, max_rank> size{};

  Shape() = default;
  // Throws when there are more than 8 sizes or one is negative.
  Shape(std::initializer_list<std::int64_t> sizes) {
    for (const std::int64_t value : sizes) append(value);
  }

  void append(std::int64_t value) {
    check(rank < max_rank, "shape", "rank over {}", max_rank);
    check(value >= 0, "shape", "negative size {}", value);
    size[static_cast<std::size_t>(rank++)] = value;
  }

  std::int64_t& operator[](int axis) { return size[static_cast<std::size_t>(axis)]; }
  std::int64_t operator[](int axis) const { return size[static_cast<std::size_t>(axis)]; }
  // Size counted from the end: back(0) is the last axis.
  std::int64_t back(int from_end = 0) const { return (*this)[rank - 1 - from_end]; }

  // Number of elements; 1 for rank 0.
  std::int64_t numel() const {
    std::int64_t n = 1;
    for (int axis = 0; axis < rank; ++axis) n *= (*this)[axis];
    return n;
  }

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank != b.rank) return false;
    for (int axis = 0; axis < a.rank; ++axis) {
      if (a[axis] != b[axis]) return false;
    }
    return true;
  }
};

// "[16, 512, 256]".
std::string to_text(const Shape& shape);

// Row-major strides of a dense tensor.
Strides dense_strides(const Shape& shape);

// Whether the elements are row-major without gaps (axes of size 1 may have any stride).
bool is_dense(const Shape& shape, const Strides& strides);

// The shape both broadcast to, by the NumPy rule (aligned at the last axis). Throws Error("[where] ...") naming both.
Shape broadcast_shapes(std::string_view where, const Shape& a, const Shape& b);

// 0 <= result < rank from an axis that may be negative. Throws naming axis and shape.
int normalise_axis(std::string_view where, int axis, const Shape& shape);

}  // namespace tally
