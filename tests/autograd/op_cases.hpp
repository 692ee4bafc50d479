// One table of all operations. Its rows drive the tests of values, gradients, strides, edge sizes, leaks, thread counts
// and coverage of the kernel table in operations_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/shape.hpp"
#include "core/tensor.hpp"

namespace tally::testing {

using Index = Shape;  // an index: one number for each axis

// Plain numbers for the references: simple loops in double that share nothing with the kernels.
struct Array {
  Shape shape;
  std::vector<double> values;

  explicit Array(const Shape& shape_) : shape(shape_), values(static_cast<std::size_t>(shape_.numel()), 0.0) {}
  double& operator[](const Index& index) { return values[offset(index)]; }
  // Axes of size 1, and axes that are missing in front, are repeated.
  double operator[](const Index& index) const { return values[offset(index)]; }

 private:
  std::size_t offset(const Index& index) const {
    std::int64_t result = 0;
    for (int axis = 0; axis < shape.rank; ++axis) {
      const std::int64_t n = index[index.rank - shape.rank + axis];
      result = result * shape[axis] + (shape[axis] == 1 ? 0 : n);
    }
    return static_cast<std::size_t>(result);
  }
};

// Calls f(index) for every index of the shape, row-major.
template <class F>
void for_each_index(const Shape& shape, F&& f) {
  Index index = shape;
  for (std::int64_t n = 0; n < shape.numel(); ++n) {
    std::int64_t rest = n;
    for (int axis = shape.rank - 1; axis >= 0; --axis) {
      index[axis] = rest % shape[axis];
      rest /= shape[axis];
    }
    f(static_cast<const Index&>(index));
  }
}

// A shape or an index of these numbers.
template <class... Numbers>
Shape shape(Numbers... numbers) {
  return {numbers...};
}

// index with another last number, and with its two last ones.
inline Index with_last(Index index, std::int64_t last) {
  index[index.rank - 1] = last;
  return index;
}
inline Index with_last_two(Index index, std::int64_t before_last, std::int64_t last) {
  index[index.rank - 2] = before_last;
  index[index.rank - 1] = last;
  return index;
}

Array to_array(const Tensor& x);

// The contents of an argument. Numbers are drawn from [low, high).
struct Operand {
  enum class Kind {
    real,          // floating, takes a gradient
    off_integers,  // the same, at least 0.1 away from every integer: away from the kinks of relu, abs, interpolate, ...
    whole,         // the same, integers: ties
    constant,      // floating, takes no gradient
    id,            // i32
    flag,          // bool
  };
  Kind kind = Kind::real;
  double low = -2;
  double high = 2;

  bool takes_gradient() const { return kind == Kind::real || kind == Kind::off_integers || kind == Kind::whole; }
  bool floating() const { return kind != Kind::id && kind != Kind::flag; }
};

using Shapes = std::vector<Shape>;  // one for each operand

struct OpCase {
  std::string name;
  std::vector<std::string> kernels;  // of kernels.def that it must call, forward or backward
  std::vector<Operand> operands;
  std::vector<Shapes> shapes;  // small ones: ordinary, broadcast, one element, no element, a whole block and a rest
  Shapes large;                // enough for several tiles of work; left out where tests take a share
  std::function<Tensor(const std::vector<Tensor>&)> run;
  std::function<Array(const std::vector<Array>&)> reference;
  bool differentiable = true;
  // Largest error as a multiple of the type's epsilon times the largest magnitude of the reference.
  double tolerance = 8;
};

// Deterministic values of an operand; dtype is the type of floating-point operands.
Tensor make_operand(const OpCase& op, std::size_t operand, const Shape& shape, DType dtype, Device device);
std::vector<Tensor> make_operands(const OpCase& op, const Shapes& shapes, DType dtype, Device device);

const std::vector<OpCase>& op_cases();

// By family; each has its file cases_<family>.cpp.
std::vector<OpCase> elementwise_cases();
std::vector<OpCase> row_cases();  // reduce, softmax, norm, scan
std::vector<OpCase> product_cases();
std::vector<OpCase> index_cases();  // index, position, rotate, random, loss
std::vector<OpCase> shape_cases();
std::vector<OpCase> attention_cases();
std::vector<OpCase> recurrent_cases();
std::vector<OpCase> direct_cases();  // kernels that no operation calls: optimizer, random numbers, copies

}  // namespace tally::testing
