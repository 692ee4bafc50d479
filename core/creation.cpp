// Tensors of given numbers, of sequences and of random numbers.
#include <cmath>

#include "core/device/kernels.hpp"
#include "core/error.hpp"
#include "core/math/random.hpp"
#include "core/tensor.hpp"

namespace tally {
namespace {

// An empty tensor for random numbers, which kernels draw in f32 and f64.
Tensor drawn(std::string_view where, const Shape& shape, DType dtype, Device device) {
  check(is_floating(dtype), where, "random numbers are f32 or f64, not {}", dtype);
  return Tensor::empty(shape, dtype, device);
}

}  // namespace

NestedList::NestedList(std::initializer_list<NestedList> lists) {
  shape.append(std::ssize(lists));
  if (lists.size() == 0) return;
  const Shape& first = lists.begin()->shape;
  for (int axis = 0; axis < first.rank; ++axis) shape.append(first[axis]);
  for (const NestedList& list : lists) {
    check(list.shape == first, "tensor", "lists of one level must have one shape, got {} and {}", first, list.shape);
    values.insert(values.end(), list.values.begin(), list.values.end());
  }
}

Tensor Tensor::from(const NestedList& list, DType dtype, Device device) {
  return from(list.values, list.shape).to(dtype).to(device);
}

Tensor Tensor::ones(const Shape& shape, DType dtype, Device device) { return full(shape, 1, dtype, device); }

Tensor Tensor::arange(std::int64_t n, DType dtype, Device device) {
  return arange(0, static_cast<double>(n), 1, dtype, device);
}

Tensor Tensor::arange(double begin, double end, double step, DType dtype, Device device) {
  const double count = std::ceil((end - begin) / step);
  check(std::isfinite(count), "arange", "begin {}, end {} and step {} give no finite number of elements", begin, end,
        step);
  std::vector<double> values;
  for (std::int64_t n = 0; static_cast<double>(n) < count; ++n) {
    values.push_back(begin + static_cast<double>(n) * step);
  }
  return from(values, {std::ssize(values)}).to(dtype).to(device);
}

Tensor Tensor::eye(std::int64_t n, DType dtype, Device device) {
  const Tensor matrix = zeros({n, n}, dtype, device);
  matrix.detached_strided({n}, {{n + 1}}, 0).fill(1);
  return matrix;
}

Tensor Tensor::rand(const Shape& shape, std::uint64_t seed, DType dtype, Device device) {
  const Tensor result = drawn("rand", shape, dtype, device);
  kernels(device).random_uniform(result.view(), {seed, stream_of("rand"), 0}, 0, 1);
  return result;
}

Tensor Tensor::randn(const Shape& shape, std::uint64_t seed, DType dtype, Device device) {
  const Tensor result = drawn("randn", shape, dtype, device);
  kernels(device).random_normal(result.view(), {seed, stream_of("randn"), 0}, 0, 1);
  return result;
}

}  // namespace tally
